from __future__ import annotations

import pytest

from gnomon.errors import InputError
from gnomon.estimate import Estimate
from gnomon.ingest.boavizta import find_product, read_boavizta

TABLE = """\
manufacturer,name,category,subcategory,gwp_total,gwp_error_ratio,gwp_manufacturing_ratio,lifetime,yearly_tec,sources
Dell,PowerEdge R740,Datacenter,Server,8640,0.5,0.152,4,1752,sheet.pdf
Dell,PowerEdge R740XD,Datacenter,Server,9180,1.1547,0.144,4,,
Lenovo,ThinkSystem SR645,Datacenter,Server,13036,0.5741,,3,,
HP,Odd,Workplace,Laptop,100,,7.76,,,
HP,Untold,Workplace,Laptop,,,,,,
"""


def products(tmp_path, text=TABLE):
    file = tmp_path / "b.csv"
    file.write_text(text)
    return read_boavizta(file)


def test_manufacturing_with_its_error_as_a_range(tmp_path):
    found = products(tmp_path)
    assert len(found) == 4
    r740 = find_product(found, "dell poweredge r740")
    assert r740.making() == Estimate(8640 * 0.152 * 0.5, 8640 * 0.152, 8640 * 0.152 * 1.5)
    assert (r740.line, r740.life_years, r740.mean_w, r740.source) == (
        2,
        4,
        pytest.approx(200),
        "sheet.pdf",
    )
    # An error above 100 % cannot make it less than nothing.
    assert find_product(found, "R740XD").making().low == 0


def test_lines_without_a_share_say_so(tmp_path):
    found = products(tmp_path)
    with pytest.raises(
        InputError, match=r"'ThinkSystem SR645' \(line 4\) gives no share of manufacturing"
    ):
        find_product(found, "SR645").making()
    with pytest.raises(InputError, match="share of manufacturing of 7"):
        find_product(found, "Odd").making()


def test_names_that_are_not_enough(tmp_path):
    found = products(tmp_path)
    with pytest.raises(
        InputError, match="several products are called 'R740'; did you mean PowerEdge R740 or"
    ):
        find_product(found, "R740")
    with pytest.raises(InputError, match="no product is called 'abacus'"):
        find_product(found, "abacus")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2\n", "no column manufacturer"),
        (TABLE.replace("8640", "much"), "line 2: gwp_total: 'much'"),
    ],
    ids=["columns", "number"],
)
def test_what_is_wrong_is_one_line(tmp_path, text, words):
    with pytest.raises(InputError, match=words):
        products(tmp_path, text)


@pytest.mark.data
def test_the_published_table(public_data):
    found = read_boavizta(public_data / "carbon" / "boavizta-embodied" / "boavizta-data-us.csv")
    servers = [p for p in found if p.subcategory == "Server"]
    making = sorted(p.embodied_kg.mid for p in servers if p.embodied_kg is not None)
    assert (len(found), len(servers), len(making)) == (1226, 55, 48)
    assert making[0] == pytest.approx(465)
    assert making[-1] == pytest.approx(2502.63)
    assert find_product(found, "PowerEdge R740").making().mid == pytest.approx(1313.28)
