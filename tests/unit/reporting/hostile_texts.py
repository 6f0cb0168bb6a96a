"""What a candidate, a run's maker or a result file may write into any field of theirs."""

from __future__ import annotations

MARK = "pwned"
"""A name that only a text which acts can set: as a title, a global or an attribute of the page."""

TEXTS = {
    "script": f"<script>document.title='{MARK}';window.{MARK}=1</script>",
    "end of script": f"</script><script>window.{MARK}=1</script>",
    "end of data": f"</script\n><img src=x onerror=window.{MARK}=1>",
    "comment": f"<!--<script>window.{MARK}=1",
    "end of comment": f"--!><svg onload=window.{MARK}=1>",
    "cdata": f"]]><script>window.{MARK}=1</script><![CDATA[",
    "end of style": f"</style><script>window.{MARK}=1</script><style>",
    "end of title": f"</title></head><body onload=window.{MARK}=1>",
    "end of text": f"</pre></code></textarea></details></table><iframe srcdoc='<script>parent.{MARK}=1</script>'>",
    "attribute": f'" onmouseover=window.{MARK}=1 autofocus onfocus=window.{MARK}=1 x="',
    "attribute, single": f"' onmouseover='window.{MARK}=1' style='position:fixed;inset:0",
    "event": f"<body onpageshow=window.{MARK}=1><details open ontoggle=window.{MARK}=1>",
    "link": f"<a href=javascript:window.{MARK}=1>x</a><base href=http://127.0.0.1:9/>",
    "form": "<form action=http://127.0.0.1:9/><input autofocus><meta http-equiv=refresh content='0;url=http://127.0.0.1:9/'>",
    "image": "<img src=http://127.0.0.1:9/a.png><link rel=stylesheet href=http://127.0.0.1:9/a.css>",
    "template": "{{ 7*7 }}{% for x in range(9**9) %}{{ x }}{% endfor %}{# #}",
    "entities": "&lt;script&gt;&#60;script&#62; &amp;amp; &quot;",
    "svg": f"</text></svg><svg><script>window.{MARK}=1</script><animate onbegin=window.{MARK}=1>",
    "bidi": "admin\u202e\u2066 nrut\u2069 \u200f\u061c",
    "controls": "\x00\x01\x08\x0b\x0c\x1b[2J\x1b]0;title\x07\x7f\x9b\r",
    "surrogates": "\ud800 \udfff\ud83d",
    "invisible": "a\u200bb\u2060c\ufeffd\u00ade\U000e0041f\ufe0f\uffff",
    "separators": "one\u2028two\u2029three\nfour\ttwo",
    "pile of marks": "a" + "\u0301" * 5_000,
    "wide line": "x" * 200_000,
    "many lines": "\n" * 50_000,
    "mathtext": r"$\frac{1}{0}$ \input{/etc/passwd} ^_{",
    "paths": "../../../etc/passwd",
    "format": "%s%n{0}{}%(x)s",
    "emoji": "\U0001f9e0 naïve Ωmega 中文",
    "empty": "",
    "space": "   ",
}
