"""Files of grid intensity: every shape that is read, and everything that is refused."""

from __future__ import annotations

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.errors import InputError
from gnomon.ingest.intensity.files import read_intensity
from gnomon.ingest.metrics.signal_csv import write_signal_csv
from gnomon.series import Signal
from gnomon.series.intensity import intensity_kind
from gnomon.series.zones import zone_signal

HOUR_NS = 3600 * 10**9
START_NS = 1709251200 * 10**9  # 2024-03-01
LB = 0.45359237


def at(hour, minute=0):
    return f"2024-03-01T{hour:02}:{minute:02}:00Z"


PORTAL = """\
Datetime (UTC),Country,Zone name,Zone id,Carbon intensity gCO₂eq/kWh (direct),\
Carbon intensity gCO₂eq/kWh (Life cycle),Carbon-free energy percentage (CFE%),\
Renewable energy percentage (RE%),Data source,Data estimated,Data estimation method
2024-03-01 00:00:00,Sweden,Sweden,SE,2.54,30.02,99.42,60.13,svk.se,true,SOME
2024-03-01 01:00:00,Sweden,Sweden,SE,2.6,30.32,99.4,59.52,svk.se,false,
2024-03-01 02:00:00,Sweden,Sweden,SE,2.7,31.5,99.4,59.52,svk.se,false,
"""
PORTAL_2021 = """\
Datetime (UTC),Country,Zone Name,Zone Id,Carbon Intensity gCO₂eq/kWh (direct),\
Carbon Intensity gCO₂eq/kWh (LCA),Low Carbon Percentage,Renewable Percentage,Data Source,\
Data Estimated,Data Estimation Method
2024-03-01 00:00:00,Germany,Germany,DE,380.5,431.25,55,50,entsoe.eu,false,
2024-03-01 01:00:00,Germany,Germany,DE,390,440,55,50,entsoe.eu,false,
"""
REDUCED = """\
datetime_utc,direct_gco2_kwh,lca_gco2_kwh,low_carbon_pct,renewable_pct,estimated
2024-03-01 00:00:00,449.07,526.77,50.01,29.43,0
2024-03-01 01:00:00,455.08,533.4,49.59,28.78,1
"""
CAST_ISO = """\
,UTC time,carbon_intensity,coal,wind
0,2024-03-01 00:00:00+00:00,354.59,45194,26849
1,2024-03-01 01:00:00+00:00,349.36,44882,28292
"""
CAST_US = """\
,UTC time,carbon_intensity,coal,wind
0,03/01/2024 00:00:00,330.62,12,225
1,03/01/2024 01:00:00,389.74,15,222
"""
WATTTIME_V3 = f"point_time,value\n{at(0)},1000\n{at(0, 5)},900\n"
WATTTIME_V2 = "timestamp,MOER\n2024-03-01 00:00:00+00:00,1000\n2024-03-01 00:05:00+00:00,900\n"
BARE = f"time,carbon_gco2_kwh\n{at(0)},300\n{at(1)},310\n"
KILOGRAMS = f"time;marginal intensity (kgCO2/kWh)\n{at(0)};0.3\n{at(1)};0.31\n"


def maps_entry(hour, value, **more):
    return {
        "zone": "DE",
        "carbonIntensity": value,
        "datetime": f"2024-03-01T{hour:02}:00:00.000Z",
        "updatedAt": at(9),
        "emissionFactorType": "lifecycle",
        "isEstimated": False,
        "estimationMethod": None,
        **more,
    }


MAPS_HISTORY = {"zone": "DE", "history": [maps_entry(h, 300 + h) for h in range(3)]}
MAPS_RANGE = {
    "zone": "DE",
    "data": [maps_entry(h, 300 + h, emissionFactorType="direct") for h in range(3)],
}
MAPS_FORECAST = {
    "zone": "DE",
    "forecast": [{"carbonIntensity": 300 + h, "datetime": at(h)} for h in range(3)],
    "updatedAt": at(0),
}
MAPS_LATEST = maps_entry(0, 302, isEstimated=True)
WATT_META = {
    "region": "CAISO_NORTH",
    "signal_type": "co2_moer",
    "units": "lbs_co2_per_mwh",
    "data_point_period_seconds": 300,
    "model": {"date": "2023-03-01"},
}
WATT_DATA = [{"point_time": at(0), "value": 1000}, {"point_time": at(0, 5), "value": 900.5}]
WATT_JSON = {"data": WATT_DATA, "meta": WATT_META}
WATT_PAST_FORECAST = {"data": [{"generated_at": at(0), "forecast": WATT_DATA}], "meta": WATT_META}
WATT_V2 = [{**row, "ba": "CAISO_NORTH", "datatype": "MOER", "frequency": 300} for row in WATT_DATA]


def half_hour(number, forecast, actual=None, **more):
    def half(n):
        return f"2024-03-01T{n // 2:02}:{30 * (n % 2):02}Z"

    intensity = {"forecast": forecast, "actual": actual, "index": "low"}
    return {"from": half(number), "to": half(number + 1), "intensity": intensity, **more}


UK = {"data": [half_hour(0, 140, 150), half_hour(1, 142), half_hour(2, 144)]}
UK_REGION = {
    "data": {
        "regionid": 13,
        "dnoregion": "UKPN London",
        "shortname": "London",
        "data": [half_hour(0, 140), half_hour(1, 142)],
    }
}
UK_REGIONS = {
    "data": [
        {
            **{k: v for k, v in half_hour(n, 0).items() if k != "intensity"},
            "regions": [
                {"regionid": 13, "shortname": "London", "intensity": {"forecast": 200 + n}},
                {"regionid": 1, "shortname": "North Scotland", "intensity": {"forecast": n}},
            ],
        }
        for n in range(2)
    ]
}
SDK_EMISSIONS = [
    {
        "Location": "eastus",
        "Time": "2024-03-01T00:00:00+00:00",
        "Rating": 97,
        "Duration": "08:00:00",
    },
    {
        "Location": "eastus",
        "Time": "2024-03-01T08:00:00+00:00",
        "Rating": 48,
        "Duration": "08:00:00",
    },
]
SDK_FORECAST = [
    {
        "generatedAt": at(0),
        "location": "eastus",
        "optimalDataPoints": [],
        "forecastData": [
            {"location": "PJM", "timestamp": at(0, 5 * n), "duration": 5, "value": 380.99 + n}
            for n in range(3)
        ],
    }
]

SHAPES = {
    "portal": (PORTAL, "electricitymaps-csv", "average/lifecycle", "SE", 30.02, 3),
    "portal-2021": (PORTAL_2021, "electricitymaps-csv", "average/lifecycle", "DE", 431.25, 2),
    "reduced": (REDUCED, "electricitymaps-csv", "average/lifecycle", None, 526.77, 2),
    "carboncast": (CAST_ISO, "carboncast-csv", "average/lifecycle", None, 354.59, 2),
    "carboncast-us": (CAST_US, "carboncast-csv", "average/lifecycle", None, 330.62, 2),
    "watttime-v3": (WATTTIME_V3, "watttime-csv", "marginal/direct", None, 1000 * LB, 1 / 6),
    "watttime-v2": (WATTTIME_V2, "watttime-csv", "marginal/direct", None, 1000 * LB, 1 / 6),
    "bare": (BARE, "csv", "average/lifecycle", None, 300, 2),
    "kilograms": (KILOGRAMS, "csv", "marginal/lifecycle", None, 300, 2),
    "maps-history": (MAPS_HISTORY, "electricitymaps-json", "average/lifecycle", "DE", 300, 3),
    "maps-range": (MAPS_RANGE, "electricitymaps-json", "average/direct", "DE", 300, 3),
    "maps-forecast": (MAPS_FORECAST, "electricitymaps-json", "average/lifecycle", "DE", 300, 3),
    "maps-latest": (MAPS_LATEST, "electricitymaps-json", "average/lifecycle", "DE", 302, 1),
    "watt": (WATT_JSON, "watttime-json", "marginal/direct", "CAISO_NORTH", 1000 * LB, 1 / 6),
    "watt-past": (WATT_PAST_FORECAST, "watttime-json", "marginal/direct", "CAISO_NORTH",
                  1000 * LB, 1 / 6),
    "watt-v2": (WATT_V2, "watttime-json", "marginal/direct", "CAISO_NORTH", 1000 * LB, 1 / 6),
    "uk": (UK, "uk-carbon-intensity-json", "average/direct", "GB", 150, 1.5),
    "uk-region": (UK_REGION, "uk-carbon-intensity-json", "average/direct", "London", 140, 1),
    "sdk": (SDK_EMISSIONS, "carbon-aware-sdk-json", "average/lifecycle", "eastus", 97, 16),
    "sdk-forecast": (SDK_FORECAST, "carbon-aware-sdk-json", "average/lifecycle", "eastus",
                     380.99, 0.25),
}  # fmt: skip


def write(tmp_path, content, name="grid"):
    text = content if isinstance(content, str) else json.dumps(content)
    file = tmp_path / name
    file.write_text(text)
    return file


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_every_shape_by_its_content(tmp_path, name, packed):
    content, form, kind, zone, first, hours = SHAPES[name]
    file = write(tmp_path, content)
    if packed:
        file.write_bytes(gzip.compress(file.read_bytes()))
    found = read_intensity(file)
    assert found.format == form
    assert found.signal.kind == f"carbon-intensity/{kind}"
    assert str(found.signal.unit) == "gCO2e/kWh"
    assert found.signal.zone == zone
    assert found.signal.start_ns == START_NS
    assert found.signal.values[0] == pytest.approx(first)
    assert found.signal.duration_ns == pytest.approx(hours * HOUR_NS)
    assert found.signal.gaps() == []


def test_scope_chooses_the_column_and_what_a_file_says_wins(tmp_path):
    direct = read_intensity(write(tmp_path, PORTAL), scope="direct")
    assert direct.signal.values.tolist() == [2.54, 2.6, 2.7]
    assert direct.signal.kind == intensity_kind("average", "direct")
    uk = read_intensity(write(tmp_path, UK), scope="lifecycle")
    assert uk.signal.kind == intensity_kind("average", "direct")
    assert "It is direct intensity, not life-cycle." in uk.notes
    sdk = write(tmp_path, SDK_EMISSIONS)
    assert read_intensity(sdk, basis="marginal").signal.kind == intensity_kind("marginal")
    assert any("does not say whether it is average" in note for note in read_intensity(sdk).notes)


@pytest.mark.parametrize(
    ("column", "grams", "says_unit"),
    [
        ("carbon intensity lb/MWh", LB, True),
        ("carbon intensity (lbs/MWh)", LB, True),
        ("carbon intensity [lb CO2/MWh]", LB, True),
        ("carbon intensity lbs CO2 per MWh", LB, True),
        ("carbon_intensity_lbs_co2_per_mwh", LB, True),
        ("MOER (lb CO₂e/MWh)", LB, True),
        ("Pounds of CO2 intensity (pounds/kWh)", 1000 * LB, True),
        ("intensity kg CO2e/MWh (LCA)", 1, True),
        ("intensity (kgCO2/kwh)", 1000, True),
        ("carbon_intensity_kg_kwh", 1000, True),
        ("CO2-Intensität [t CO2/GWh]", 1, True),
        ("carbon intensity (g CO2-eq/kWh)", 1, True),
        ("average carbon intensity (direct, estimated)", 1, False),
        ("carbon_intensity (life cycle)", 1, False),
        ("carbon_intensity", 1, False),
    ],
)
def test_units_as_headers_write_them(tmp_path, column, grams, says_unit):
    found = read_intensity(write(tmp_path, f'time,"{column}"\n{at(0)},2\n{at(1)},3\n'))
    assert found.signal.values.tolist() == pytest.approx([2 * grams, 3 * grams])
    is_said = not any("does not say its unit" in note for note in found.notes)
    assert is_said == says_unit


@pytest.mark.parametrize(
    "column",
    ["intensity (st/MWh)", "intensity [mtCO2/MWh]", "intensity CO2/kWh", "intensity (tons/MWh)",
     "carbon_intensity_lbs", "carbon_intensity_tons", "intensity (x)", "g carbon/kWh"],
)  # fmt: skip
def test_a_unit_that_is_not_known_is_refused(tmp_path, column):
    file = write(tmp_path, f"time,{column}\n{at(0)},2\n{at(1)},3\n", "bad.csv")
    with pytest.raises(InputError, match=r"bad.csv: column .* is no unit that is known; an inten"):
        read_intensity(file)


def test_names_without_end_are_no_trouble(tmp_path):
    for filler in (" ", "(", "_", "g ", "co2", "life"):
        column = "g" + filler * (300_000 // len(filler))
        with pytest.raises(InputError):
            read_intensity(write(tmp_path, f"time,{column}\n{at(0)},2\n"))


def test_both_that_a_file_does_not_say_are_said(tmp_path):
    file = write(tmp_path, BARE)
    for scope, word in ((None, "life-cycle"), ("lifecycle", "life-cycle"), ("direct", "direct")):
        notes = read_intensity(file, scope=scope).notes
        for shown in ("average", word):
            assert f"It does not say whether it is {shown} intensity; taken as such." in notes


@pytest.mark.parametrize(
    ("values", "end", "is_said"),
    [
        ((300, 310, 305, 30), "", True),
        ((300, 310, 305, 930.5), "", True),
        ((300, 310, 305, 30), "\n", False),
        ((300, 310, 305, 101), "", False),
        ((300, 80, 305, 30), "", False),
    ],
    ids=["low", "high", "ended", "near", "seen"],
)
def test_a_last_line_that_may_be_cut_is_said(tmp_path, values, end, is_said):
    rows = [row(hour, value) for hour, value in enumerate(values)]
    notes = read_intensity(write(tmp_path, table(*rows).rstrip("\n") + end)).notes
    assert any("The last line may be cut: line 5" in note for note in notes) == is_said


def test_only_the_last_day_is_asked_whether_a_line_is_cut(tmp_path):
    early = [row(hour, 30) for hour in range(3)]
    late = [f"2024-03-0{day}T{hour:02}:00:00Z,300" for day in (3, 4) for hour in range(24)]
    text = table(*early, *late, "2024-03-05T00:00:00Z,30").rstrip("\n")
    assert any(
        "may be cut" in note for note in read_intensity(write(tmp_path, text), fill="hold").notes
    )


def test_tables_of_spreadsheets(tmp_path):
    rows = ["01.03.2024 0:00;300,0", "01.03.2024 01:00;310,5", "01.03.2024 02:00:00;1.234"]
    text = "Datum;CO2-Intensität, Mittel (g/kWh)\n" + "\n".join(rows[:2]) + "\n"
    found = read_intensity(write(tmp_path, text)).signal
    assert found.values.tolist() == [300, 310.5]
    assert found.start_ns == START_NS
    with pytest.raises(
        InputError, match=r"line 4: '1.234' where numbers above have a decimal comma"
    ):
        read_intensity(write(tmp_path, text + rows[2] + "\n"))
    with pytest.raises(InputError, match=r"line 2: '1.234,5' in column .* is not a number"):
        read_intensity(write(tmp_path, text.replace("300,0", "1.234,5")))
    with pytest.raises(InputError, match="the first line holds values"):
        read_intensity(write(tmp_path, "\n".join(rows)))
    with pytest.raises(InputError, match=r"'03.31.2024' is no time"):
        read_intensity(write(tmp_path, table("03.31.2024,1", "04.01.2024,2")))


def test_forecasts_and_estimates_are_counted(tmp_path):
    assert (
        "2 of 3 half-hours are forecasts: not measured."
        in read_intensity(write(tmp_path, UK)).notes
    )
    assert (
        "1 of 3 values are estimates, as it says." in read_intensity(write(tmp_path, PORTAL)).notes
    )


def test_several_zones_need_one(tmp_path):
    both = PORTAL + PORTAL.splitlines()[1].replace("Sweden,Sweden,SE,2.54", "Norway,Norway,NO,1")
    file = write(tmp_path, both)
    with pytest.raises(InputError, match="2 zones are in it; say which with zone: SE, NO"):
        read_intensity(file)
    assert len(read_intensity(file, zone="se").signal) == 3
    with pytest.raises(InputError, match="it is of SE, NO, not of 'FR'"):
        read_intensity(file, zone="FR")
    regions = write(tmp_path, UK_REGIONS)
    assert read_intensity(regions, zone="London").signal.values.tolist() == [200, 201]
    with pytest.raises(InputError, match="London, North Scotland"):
        read_intensity(regions)


def test_names_of_one_grid_are_one(tmp_path):
    file = write(tmp_path, MAPS_HISTORY)
    assert read_intensity(file, zone="DE-LU").signal.zone == "DE"
    with pytest.raises(InputError, match="it is of DE, not of 'SE'"):
        read_intensity(file, zone="SE")
    assert read_intensity(write(tmp_path, REDUCED), zone="DE").signal.zone == "DE"


def test_what_we_write_comes_back(tmp_path):
    signal = Signal.regular(
        START_NS, HOUR_NS, [0.3, 0.2], low=[0.1, 0.1], high=[0.4, 0.3], unit="kgCO2e/kWh",
        kind=intensity_kind("marginal", "direct"), zone="DE", attribution="us",
    )  # fmt: skip
    write_signal_csv(signal, tmp_path / "own.csv.gz")
    found = read_intensity(tmp_path / "own.csv.gz")
    assert found.format == "gnomon-csv"
    assert found.notes == ()
    assert found.signal == signal.to("gCO2e/kWh")
    generated = zone_signal("DE", START_NS, START_NS + 48 * HOUR_NS)
    write_signal_csv(generated, tmp_path / "year.csv")
    assert read_intensity(tmp_path / "year.csv", zone="DE").signal == generated
    holed = generated.replace(values=[float("nan"), *generated.values[1:]])
    write_signal_csv(holed, tmp_path / "holed.csv")
    with pytest.raises(InputError, match=r"holed.csv: line 3: no value for 2024-03-01T00:00Z"):
        read_intensity(tmp_path / "holed.csv")


def table(*rows):
    return "\n".join(["time,carbon_gco2_kwh", *rows]) + "\n"


def row(hour, value):
    return f"{at(hour)},{value}"


BAD = {
    "gap": (table(row(0, 1), row(1, 2), row(2, 2), row(4, 3)),
            "line 5: a gap before it, from 2024-03-01T03:00Z to 2024-03-01T04:00Z (1 h 0 min)"),
    "blank": (table(row(0, 1), row(1, ""), row(2, 3)), "line 3: no value for 2024-03-01T01:00Z"),
    "nan": (table(row(0, 1), row(1, "NaN"), row(2, 3)), "line 3: no value for"),
    "negative": (table(row(0, 1), row(1, -2)), "line 3: -2 gCO2e/kWh is below zero"),
    "duplicate": (table(row(0, 1), row(1, 2), row(1, 3)),
                  "line 4: 2024-03-01T01:00Z is there twice: 3, and 2 in line 3"),
    "unsorted": (table(row(0, 1), row(2, 2), row(1, 3)),
                 "line 4: 2024-03-01T01:00Z is before the row above, 2024-03-01T02:00Z"),
    "absurd": (table(row(0, 1), row(1, 400000)), "line 3: 400000 gCO2e/kWh is above 5000"),
    "word": (table(row(0, 1), row(1, "much")), "line 3: 'much' in column"),
    "infinite": (table(row(0, 1), row(1, "1e999")), "line 3: '1e999' in column"),
    "time": (table(row(0, 1), "yesterday,2"), "line 3: 'yesterday' is no time"),
    "slash": (table("01/02/2024,1", "01/03/2024,2"), "line 2: '01/02/2024' is no time that is clear: which is the month?"),
    "compact": (table("20240301,1", "20240302,2"), "line 2: 20240301 may be a date or seconds"),
    "ragged": (table(row(0, 1), at(1)), "line 3: 1 cells where the header has 2"),
    "empty": ("\n\n", "the file is empty"),
    "header": ("time,carbon_gco2_kwh\n", "a header and nothing below"),
    "headless": (row(0, 1) + "\n", "the first line holds values"),
    "unit": ("time,number\n" + row(0, 1) + "\n", "column 'number' does not say its unit"),
    "price": ("time,usd_per_kwh\n" + row(0, 1) + "\n", "no unit of an intensity"),
    "columns": (f"time,a_kwh,b_kwh\n{at(0)},1,2\n", "more than one column could be the intensity"),
    "untimed": ("where,carbon_gco2_kwh\nhere,1\n", "no column of times"),
    "cut": (json.dumps(MAPS_HISTORY)[:-30], "not JSON: Input data was truncated; was it cut"),
    "refused": ({"error": "Invalid auth-token"}, "it says 'Invalid auth-token'"),
    "unknown": ({"data": []}, "no intensity that is known"),
    "nothing": ({"zone": "DE", "history": []}, "there is no value in it"),
    "null": ({"zone": "DE", "history": [maps_entry(0, 1), maps_entry(1, None)]},
             "history[1]: no value for 2024-03-01T01:00Z"),
    "json-gap": ({"zone": "DE", "history": [maps_entry(h, 1) for h in (0, 1, 3)]},
                 "history[2]: a gap before it"),
    "json-word": ({"zone": "DE", "history": [maps_entry(0, "1")]},
                  "history[0]: '1' is not a number"),
    "untimed-entry": ({"zone": "DE", "history": [maps_entry(0, 1, datetime=5)]},
                      "history[0]: no time in 'datetime'"),
    "mixed": ({"history": [maps_entry(0, 1), maps_entry(1, 1, emissionFactorType="direct")],
               "zone": "DE"}, "rows of several emission factors"),
    "damage": ({"data": WATT_DATA, "meta": {**WATT_META, "signal_type": "health_damage"}},
               "health_damage in lbs_co2_per_mwh"),
    "forecasts": ({"data": WATT_PAST_FORECAST["data"] * 2, "meta": WATT_META},
                  "2 forecasts are in it"),
    "backwards": ({"data": [{**half_hour(0, 1), "to": "2024-02-01T00:00Z"}]},
                  "data[0]: ends before it begins"),
    "duration": ([{**SDK_EMISSIONS[0], "Duration": -5}], "entry 0: a duration of '-5'"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_one_line_with_file_and_row(tmp_path, name):
    content, words = BAD[name]
    with pytest.raises(InputError) as caught:
        read_intensity(write(tmp_path, content, "bad.csv"))
    said = str(caught.value)
    assert words in said
    assert "bad.csv: " in said
    assert "\n" not in said


@pytest.mark.parametrize("name", ["negative", "absurd", "word", "cut", "empty"])
def test_filling_repairs_no_nonsense(tmp_path, name):
    with pytest.raises(InputError):
        read_intensity(write(tmp_path, BAD[name][0]), fill="hold")


def test_holding_and_lines_are_said(tmp_path):
    file = write(
        tmp_path, table(row(0, 100), row(1, 200), row(2, 200), row(5, "nan"), row(6, 600))
    )
    held = read_intensity(file, fill="hold")
    assert held.signal.mean(START_NS + 2 * HOUR_NS, START_NS + 6 * HOUR_NS) == 200
    assert held.signal.gaps() == []
    assert (
        "Filled 3 hours by holding the last value: 2024-03-01T03:00Z to 2024-03-01T06:00Z "
        "(before line 6)." in held.notes
    )
    line = read_intensity(file, fill="interpolate")
    assert line.signal.mean(START_NS + 3 * HOUR_NS, START_NS + 6 * HOUR_NS) == pytest.approx(400)
    assert "by a straight line" in line.notes[-1]


def test_filling_sorts_and_drops(tmp_path):
    file = write(tmp_path, table(row(0, 1), row(2, 3), row(1, 2), row(2, 9), row(0, 1), row(3, 4)))
    found = read_intensity(file, fill="hold")
    assert found.signal.values.tolist() == [1, 2, 3, 4]
    assert "Sorted: 2 rows were out of order, line 4 first." in found.notes
    assert (
        "Dropped 1 rows that repeat a time with another value, line 5 first; the first value "
        "counts." in found.notes
    )
    assert "Merged 1 rows that repeat another." in found.notes


def test_equal_rows_are_merged_and_said(tmp_path):
    found = read_intensity(write(tmp_path, table(row(0, 1), row(1, 2), row(1, 2), row(2, 3))))
    assert found.signal.values.tolist() == [1, 2, 3]
    assert "Merged 1 rows that repeat another." in found.notes


def test_a_hole_at_the_edge_cannot_be_held(tmp_path):
    file = write(tmp_path, table(row(0, ""), row(1, 200), row(2, 200)))
    with pytest.raises(InputError, match="nothing is known on the side that 'hold' needs"):
        read_intensity(file, fill="hold")


def test_epochs_and_irregular_rows(tmp_path):
    seconds = START_NS // 10**9
    file = write(tmp_path, table(f"{seconds}000,1", f"{seconds + 3600}000,2"))
    assert read_intensity(file).signal.start_ns == START_NS
    uneven = write(tmp_path, table(*(f"{seconds + s},5" for s in (0, 60, 200, 500, 1100))))
    found = read_intensity(uneven)
    assert any("no regular step" in note for note in found.notes)


SEEDS = [
    (content if isinstance(content, str) else json.dumps(content)).encode()
    for content, *_ in SHAPES.values()
]


@given(
    st.sampled_from(SEEDS),
    st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), max_size=6),
    st.integers(0, 2000),
    st.sampled_from([None, "hold", "interpolate"]),
)
def test_garbled_bytes_are_refused_or_read(tmp_path_factory, seed, changes, length, fill):
    raw = bytearray(seed)
    for place, byte in changes:
        raw[place % len(raw)] = byte
    file = tmp_path_factory.getbasetemp() / "garbled"
    file.write_bytes(bytes(raw[: max(1, length)]))
    try:
        found = read_intensity(file, fill=fill)
    except InputError as error:
        assert "\n" not in str(error)
    else:
        assert found.signal.gaps() == []
        assert (found.signal.values >= 0).all()


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from([at(0), at(1), "x"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["data", "history", "forecast", "carbonIntensity", "datetime", "zone", "meta", "from",
             "point_time", "value", "to", "intensity", "regions", "regionid", "time", "rating",
             "forecastData", "duration", "timestamp", "location", "actual"]
        ),
        inner, max_size=5,
    ),
    max_leaves=20,
)  # fmt: skip


@given(JSON_VALUES)
def test_any_json_is_refused_or_read(tmp_path_factory, value):
    file = tmp_path_factory.getbasetemp() / "any.json"
    file.write_text(json.dumps({"data": value} if not isinstance(value, list | dict) else value))
    try:
        read_intensity(file)
    except InputError as error:
        assert "\n" not in str(error)


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "hours", "mean"),
    [
        ("electricitymaps-hourly-2021-2024/DE-LU.csv.gz", 35064, 403.2),
        ("electricitymaps-hourly-2021-2024/US-CAL-CISO.csv.gz", 35064, 255.7),
        ("carboncast-hourly-2020-2021/CISO_lifecycle_emissions.csv.gz", 17544, 272.9),
        ("carboncast-hourly-2020-2021/DE_lifecycle_emissions.csv.gz", 17544, 326.3),
    ],
    ids=["maps-de", "maps-ca", "cast-us", "cast-de"],
)
def test_public_files(public_data, name, hours, mean):
    signal = read_intensity(public_data / "carbon" / name).signal
    assert len(signal) == hours
    assert signal.mean() == pytest.approx(mean, abs=0.05)
    assert signal.duration_ns == hours * HOUR_NS
