"""Five hundred strings that try to become more than text: markup, attributes, scripts, templates, encodings.

A string that runs as code calls `hit`, which the window counts.
"""

from itertools import product

_CALLS = (
    "hit()",
    "window.hit()",
    "top.hit()",
    "alert('hit')",
    "self['hit']()",
    "setTimeout(hit)",
    "import('/hit')",
    "eval('hit()')",
    "(()=>hit())()",
    "new Function('hit()')()",
)
_SHAPES = (
    # markup
    "<script>{call}</script>",
    "</td></tr></table><script>{call}</script>",
    "</title><script>{call}</script>",
    "</textarea><script>{call}</script>",
    "<img src=x onerror={call}>",
    "<img src=x onerror=\"{call}\">",
    "<svg onload={call}>",
    "<svg><script>{call}</script></svg>",
    "<svg><animate onbegin={call} attributeName=x dur=1s>",
    "<math><mtext></mtext><script>{call}</script></math>",
    "<iframe srcdoc=\"<script>parent.{call}</script>\">",
    "<iframe src=\"javascript:parent.{call}\">",
    "<object data=\"javascript:{call}\">",
    "<body onload={call}>",
    "<details open ontoggle={call}>",
    "<video><source onerror={call}></video>",
    "<input autofocus onfocus={call}>",
    "<a href=\"javascript:{call}\">click</a>",
    "<form action=\"javascript:{call}\"><button>go</button></form>",
    "<meta http-equiv=refresh content=\"0;url=javascript:{call}\">",
    "<link rel=stylesheet href=/hit.css onload={call}>",
    "<style>@import '/hit.css';</style><p onclick={call}>",
    "<template><script>{call}</script></template>",
    "<noscript><p title=\"</noscript><img src=x onerror={call}>\">",
    "<!--><img src=x onerror={call}>-->",
    # out of an attribute
    "\" onmouseover=\"{call}",
    "' onfocus='{call}' autofocus='",
    "\"><script>{call}</script>",
    "'><svg onload={call}>",
    "` onerror=`{call}`",
    # what htmx would do
    "<div hx-get=/hit hx-trigger=load hx-on:htmx:load=\"{call}\">",
    "<p hx-on:click=\"{call}\" data-hx-trigger=load>",
    "<div hx-vals='js:{{x: {call}}}' hx-post=/console/logout hx-trigger=load>",
    # out of a script, JSON or an address
    "</script><script>{call}</script>",
    "\";{call};//",
    "\\u003cscript\\u003e{call}\\u003c/script\\u003e",
    "javascript:{call}",
    "data:text/html,<script>{call}</script>",
    "${{{call}}}",
    # templates and encodings
    "{{{{ {call} }}}}",
    "{{% if {call} %}}",
    "{{{{ ''.__class__.__mro__ }}}} {call}",
    "&lt;script&gt;{call}&lt;/script&gt;",
    "&#60;script&#62;{call}&#60;/script&#62;",
    "%3Cscript%3E{call}%3C/script%3E",
    "+ADw-script+AD4-{call}+ADw-/script+AD4-",
    "\u202e<script>{call}</script>\u202c",
    "\ufeff<script>{call}</script>",
    "<scr\u200bipt>{call}</scr\u200bipt><img src=x onerror={call}>",
    "<\uff33cript>{call}</\uff33cript>",
)  # fmt: skip


def hostile_strings() -> list[str]:
    """Return all of them; each shape with each call."""
    return [shape.format(call=call) for shape, call in product(_SHAPES, _CALLS)]


def some_hostile_strings() -> list[str]:
    """Return each shape once, with the calls by turns."""
    return [shape.format(call=_CALLS[number % len(_CALLS)]) for number, shape in enumerate(_SHAPES)]
