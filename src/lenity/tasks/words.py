"""Word lists of the prompts that lenity makes itself, written for this project."""

from __future__ import annotations

CAPITALS = {
    "Argentina": "Buenos Aires",
    "Austria": "Vienna",
    "Belgium": "Brussels",
    "Bulgaria": "Sofia",
    "Canada": "Ottawa",
    "Chile": "Santiago",
    "China": "Beijing",
    "Colombia": "Bogota",
    "Croatia": "Zagreb",
    "Cuba": "Havana",
    "Denmark": "Copenhagen",
    "Ecuador": "Quito",
    "Egypt": "Cairo",
    "Estonia": "Tallinn",
    "Finland": "Helsinki",
    "France": "Paris",
    "Germany": "Berlin",
    "Ghana": "Accra",
    "Greece": "Athens",
    "Hungary": "Budapest",
    "Iceland": "Reykjavik",
    "India": "New Delhi",
    "Indonesia": "Jakarta",
    "Iran": "Tehran",
    "Iraq": "Baghdad",
    "Ireland": "Dublin",
    "Italy": "Rome",
    "Jamaica": "Kingston",
    "Japan": "Tokyo",
    "Kenya": "Nairobi",
    "Latvia": "Riga",
    "Lebanon": "Beirut",
    "Malaysia": "Kuala Lumpur",
    "Mexico": "Mexico City",
    "Morocco": "Rabat",
    "Nepal": "Kathmandu",
    "New Zealand": "Wellington",
    "Nigeria": "Abuja",
    "Norway": "Oslo",
    "Pakistan": "Islamabad",
    "Peru": "Lima",
    "Poland": "Warsaw",
    "Portugal": "Lisbon",
    "Romania": "Bucharest",
    "Russia": "Moscow",
    "Serbia": "Belgrade",
    "South Korea": "Seoul",
    "Spain": "Madrid",
    "Sweden": "Stockholm",
    "Syria": "Damascus",
    "Thailand": "Bangkok",
    "Tunisia": "Tunis",
    "Turkey": "Ankara",
    "Ukraine": "Kyiv",
    "United Kingdom": "London",
    "Uruguay": "Montevideo",
    "Venezuela": "Caracas",
    "Vietnam": "Hanoi",
    "Zambia": "Lusaka",
    "Zimbabwe": "Harare",
}

OTHER_SPELLINGS = {
    "Bogota": ("Bogotá",),
    "Kyiv": ("Kiev",),
    "Mexico City": ("Ciudad de México",),
    "New Delhi": ("Delhi",),
    "Reykjavik": ("Reykjavík",),
}

NAMES = tuple(
    "Alma Boris Carla Deniz Emil Fatima Goran Hanna Ivan Jelena Karim Lucia Mateo Nadia Olga Pavel "
    "Rania Stefan Teresa Viktor".split()
)

SURNAMES = tuple(
    "Adler Baker Costa Dimov Engel Fischer Garcia Horvat Ito Jensen Kowal Lindt Moreau Novak Okoye "
    "Petrov Rossi Silva Tanaka Weber".split()
)

OBJECTS = tuple(
    "pears ribbons keys balloons pebbles cups crayons postcards melons feathers badges spoons "
    "tulips bricks lemons magnets masks ropes scarves whistles".split()
)

ADJECTIVES = tuple(
    "quiet golden narrow heavy bright ancient gentle wooden frozen purple distant hollow".split()
)

ANIMALS = tuple(
    "fox heron badger otter raven turtle rabbit falcon lizard donkey beetle salmon".split()
)

VERBS = tuple("crossed watched followed circled left found climbed passed".split())

PLACES = tuple(
    "bridge meadow canal tower orchard tunnel valley pier square lighthouse quarry island".split()
)

DOMAINS = tuple("example.com example.org example.net mail.example.com post.example.org".split())

SUBJECTS = tuple(
    "how a lighthouse works|the life of a bee colony|why leaves change colour|how paper is made|"
    "what inflation is|how sound travels|the invention of the telephone|how cheese is made|"
    "why we dream|how an elevator works|the history of chess|what makes a good neighbour|"
    "how to store vegetables|how bridges carry weight|the migration of birds|how soap cleans|"
    "what a glacier is|how to prepare for an interview|the rules of table tennis|"
    "how a camera focuses|why the sea is salty|how to look after houseplants|what a budget is|"
    "how mountains form|the uses of bamboo|how to learn to swim|what a satellite does|"
    "how clocks keep time|the parts of a flower|how to write a diary".split("|")
)

ROUTINES = tuple(
    "computes the median of a list of numbers|counts the words of a sentence|"
    "checks whether a year is a leap year|converts a number to binary text|"
    "finds the smallest missing positive integer of a list|removes the vowels from a string|"
    "groups words by their first letter|returns the running total of a list|"
    "splits a list into chunks of a given size|finds the common prefix of two strings|"
    "multiplies two matrices given as nested lists|counts how many numbers are divisible by three|"
    "replaces tabs by four spaces in every line of a text|sorts names by their last letter|"
    "checks whether brackets in a string are balanced|swaps the keys and values of a dictionary|"
    "finds the mode of a list|returns the digits of an integer as a list|"
    "merges two dictionaries by adding their values|turns a title into a URL slug|"
    "computes simple interest|interleaves two lists|finds the longest run of equal items|"
    "rounds every number of a list to two decimals".split("|")
)

COLUMNS = tuple(
    "title author year price weight origin size rating stock code material owner".split()
)
