"""Plotly's script as the page runs it."""

from __future__ import annotations

import pytest
from plotly.offline import get_plotlyjs

from llm_bench_fixtures.report.renderers.html import quick_plotly

KINDS = "".join(f",kind{number}()" for number in range(30))
MODULES = (
    'var Z=W((a,b)=>{"use strict";b.exports={moduleType:"trace",name:"box"}});'
    'var Y=W((a,b)=>{"use strict";b.exports=Z()});'
    'var B=W((a,b)=>{"use strict";var c=Z();b.exports={plot:c,moduleType:"trace",name:"bar"}});'
    'var A=W((a,b)=>{"use strict";b.exports=B()});'
)
BUILT = (
    "/**\n* plotly.js v9\n*/\n(\n function(root, factory) { root.x = factory(); } (self, () => {\n"
    f'"use strict";var Plotly=(()=>{{{MODULES}var R=W((a,b)=>{{var c=R();c.register([A(),Y(){KINDS}]);b.exports=c}});'
    "return R();})();\nwindow.Plotly = Plotly;\nreturn Plotly;\n}));"
)
QUICK = (
    f'/**\n* plotly.js v9\n*/\n"use strict";var Plotly=(()=>{{{MODULES}'
    "var R=W((a,b)=>{var c=R();c.register([A()]);b.exports=c});return R();})();\nwindow.Plotly = Plotly;\n"
)


def test_it_asks_for_bars_alone_and_is_called_where_it_stands() -> None:
    assert quick_plotly(BUILT) == QUICK


def test_bars_need_not_be_the_first_kind() -> None:
    assert quick_plotly(BUILT.replace("[A(),Y()", "[Y(),A()")) == QUICK


@pytest.mark.parametrize(
    "source",
    [
        "",
        "window.Plotly = {};",
        BUILT.replace('name:"bar"', 'name:"box"').replace("var Plotly", "let Plotly"),
        BUILT.replace("[A(),", "[").replace("var Plotly", "let Plotly"),
    ],
)
def test_a_script_that_is_built_otherwise_stays_as_it_is(source: str) -> None:
    assert quick_plotly(source) == source


def test_the_installed_one_is_built_like_that() -> None:
    source = get_plotlyjs()
    quick = quick_plotly(source)
    assert quick.startswith("/**\n* plotly.js v")
    assert quick.endswith("window.Plotly = Plotly;\n")
    assert len(source) - len(quick) > 300
