"""The report of a run: one frozen document in, one HTML file, its numbers and its tables out.

    data, plot_data, token_data   what a report says: filled by tune, audit, sweep and replay
    theme, svg                    colours of light and dark; a figure as inline SVG
    lines, bars, figures          the plots, each with its caption, legend and table of numbers
    tokens, page, assets/         sections, token view, HTML
    write                         report.html, summary.json, tables/*.csv

Making a report needs the extra ``report`` (jinja2, matplotlib) and no torch; filling the document
needs neither.
"""
