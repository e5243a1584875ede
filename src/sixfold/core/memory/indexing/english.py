"""English words for search: stop words, and irregular forms that do not share a stem.

Both are closed classes of the language, so the tables are complete.
"""

from __future__ import annotations

# The last three are the rests of can't, won't and shan't.
_SILENT = """
    a about above after again all also am an and any are as at be because been before being below between both
    but by can could did do does doing down during each few for from further had has have having he her here
    hers herself him himself his how i if in into is it its itself just me more most my myself no nor not now
    of off on once only or other our ours ourselves out over own same she should so some such than that the
    their theirs them themselves then there these they this those through to too under until up very was we
    were what when where which while who whom whose why will with would you your yours yourself yourselves
    ca wo sha
"""
STOP_WORDS = frozenset(_SILENT.split())

# One verb or noun per line: the form to index, then the other forms.
_FORMS = """
    arise arose arisen; awake awoke awoken; bear bore borne; beat beaten; become became; begin began begun;
    bend bent; bind bound; bite bit bitten; bleed bled; blow blew blown; break broke broken; breed bred;
    bring brought; build built; burn burnt; buy bought; catch caught; choose chose chosen; cling clung;
    come came; creep crept; deal dealt; dig dug; draw drew drawn; dream dreamt; drink drank drunk;
    drive drove driven; eat ate eaten; fall fell fallen; feed fed; feel felt; fight fought; find found;
    flee fled; fling flung; fly flew flown; forbid forbade forbidden; forget forgot forgotten;
    forgive forgave forgiven; freeze froze frozen; get got gotten; give gave given; go went gone goes;
    grind ground; grow grew grown; hang hung; hear heard; hide hid hidden; hold held; keep kept; kneel knelt;
    know knew known; lay laid; lead led; lean leant; leap leapt; learn learnt; leave left; lend lent;
    lie lain; light lit; lose lost; make made; mean meant; meet met; mistake mistook mistaken; pay paid;
    prove proven; ride rode ridden; ring rang rung; rise rose risen; run ran; say said; see saw seen;
    seek sought; sell sold; send sent; sew sewn; shake shook shaken; shine shone; shoot shot; show shown;
    shrink shrank shrunk; sing sang sung; sink sank sunk; sit sat; sleep slept; slide slid; smell smelt;
    speak spoke spoken; spell spelt; spend spent; spill spilt; spin spun; spring sprang sprung; stand stood;
    steal stole stolen; stick stuck; sting stung; strike struck stricken; strive strove striven;
    swear swore sworn; sweep swept; swell swollen; swim swam swum; swing swung; take took taken;
    teach taught; tear tore torn; tell told; think thought; throw threw thrown; tread trod trodden;
    understand understood; undertake undertook undertaken; wake woke woken; wear wore worn; weave wove woven;
    weep wept; win won; withdraw withdrew withdrawn; write wrote written;
    child children; foot feet; goose geese; knife knives; leaf leaves; life lives; man men; mouse mice;
    ox oxen; person people; shelf shelves; thief thieves; tooth teeth; wife wives; wolf wolves; woman women;
    bad worse worst; good better best
"""

BASE_FORMS = {
    form: line.split()[0] for line in _FORMS.split(";") if line.strip() for form in line.split()[1:]
}
