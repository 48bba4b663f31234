"""How the plots of docs/reproduce look: plain, and the same bytes from the same figures."""

RC = {
    "svg.fonttype": "none",
    "svg.hashsalt": "lenity",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
}
