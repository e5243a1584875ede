"""Removal of particles that Arabic and Hebrew write together with a word.

*Ha-kelev* (the dog) is one word. The letters of particles also begin other words, and all forms of such a
word lose them alike, so the word is still found.
"""

from __future__ import annotations

import re

# Vowel marks of Arabic with the line that stretches words, and vowel marks of Hebrew.
MARKS = "\u0610-\u061a\u0640\u064b-\u065f\u0670\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7"
# The forms of five letters at the end of a word, mapped to their forms inside a word.
_FINAL = str.maketrans("ךםןףץ", "כמנפצ")
# and, the, in, to, that, from, as
_PARTICLES = "והבלשמכ"
_PLURAL = re.compile(r"(?:ימ|ות|יות)$")
_MIN_LETTERS = 3
_MIN_PLURAL_STEM = 2
# and, so, with, as, to: with the article, which the stemmer leaves before short words
_ARABIC_ARTICLE = re.compile("^[وف]?(?:[بك]?ال|لل)(?=.{3})")
_ARABIC_ENDS = ("ة", "ه", "ت")
_MIN_ARABIC_LETTERS = 4

# Plurals with a different pattern of vowels, with the letters of their singulars, without a feminine ending;
# then plurals that do not follow these patterns.
_BROKEN_PLURALS = (
    (re.compile("^م(.)ا(.)(.)$"), r"م\1\2\3"),  # schools, centers
    (re.compile("^(.)وا(.)(.)$"), r"\1ا\2\3"),  # streets, capitals
    (re.compile("^([^ا].)اي(.)$"), r"\1ي\2"),  # gardens, jobs
    (re.compile("^([^امتي][^اوي])و([^اوي])$"), r"\1\2"),  # contracts, letters
    (re.compile("^ا([^اوي].)ا([^اوي])$"), r"\1\2"),  # prices, pens
)
_PAIRS = """
    اولاد=ولد كتب=كتاب رجال=رجل كلاب=كلب جبال=جبل بحار=بحر بلاد=بلد جمال=جمل رمال=رمل قلاع=قلعة غرف=غرفة
    صور=صورة دول=دولة مدن=مدينة سفن=سفينة جزر=جزيرة قرى=قرية طرق=طريق خطط=خطة قطط=قطة شقق=شقة حدود=حد
    حقوق=حق اسرار=سر بيوت=بيت ابواب=باب ايام=يوم اخوة=اخ اباء=اب ابناء=ابن نساء=امراة جيران=جار طيور=طاير
    افلام=فيلم اسنان=سن اسماء=اسم اصدقاء=صديق اطباء=طبيب زملاء=زميل مدراء=مدير وزراء=وزير عملاء=عميل
    علماء=عالم طلاب=طالب طلبة=طالب عمال=عامل ادوية=دواء اجهزة=جهاز انظمة=نظام احذية=حذاء اسيلة=سوال
    اجوبة=جواب اسابيع=اسبوع رسايل=رسالة فواتير=فاتورة تقارير=تقرير تواريخ=تاريخ برامج=برنامج مفاتيح=مفتاح
    مشاريع=مشروع مواعيد=موعد عناوين=عنوان صناديق=صندوق شبابيك=شباك كراسي=كرسي قوانين=قانون ملايين=مليون
    ثياب=ثوب قمصان=قميص
"""
_PLURALS = {plural: one for plural, _, one in (pair.partition("=") for pair in _PAIRS.split())}


def singular(word: str) -> str:
    """Return an Arabic word without its article, and a broken plural as its singular."""
    if word in _PLURALS:
        return _PLURALS[word]
    for pattern, replacement in _BROKEN_PLURALS:
        if pattern.match(word):
            return pattern.sub(replacement, word)
    return word


def without_article(word: str) -> str:
    """Return an Arabic word without its article and the prefixes before the article."""
    return _ARABIC_ARTICLE.sub("", word)


def without_feminine(stem: str) -> str:
    """Return an Arabic stem without the feminine ending, which has three spellings."""
    return stem[:-1] if stem.endswith(_ARABIC_ENDS) and len(stem) >= _MIN_ARABIC_LETTERS else stem


def hebrew_stem(word: str) -> str:
    """Return the stem of a Hebrew word without vowel marks."""
    word = word.translate(_FINAL)
    plural = _PLURAL.search(word)
    if plural is not None and plural.start() >= _MIN_PLURAL_STEM:
        word = word[: plural.start()]
    start = 0
    while len(word) - start > _MIN_LETTERS and word[start] in _PARTICLES:
        start += 1
    word = word[start:]
    return word[:-1] if word.endswith("ה") and len(word) > _MIN_LETTERS else word
