"""The page at / in headless Chromium: every task, the code to copy, keys, keyboard, screen reader, pictures.

Needs Debian's package chromium. TRB_PICTURES=FOLDER writes the pictures of the docs into it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from browser import Browser, chromium
from conftest import KEY, ROOT

SAMPLES = ROOT / "triton_repo_builder" / "endpoint" / "golden"
IMAGE, OTHER = SAMPLES / "images" / "photo.jpg", SAMPLES / "images" / "wide.jpg"
SOUND = SAMPLES / "sounds" / "phone.wav"
TASKS = {
    "embedding": (),
    "rerank": (),
    "text-classification": (),
    "zero-shot-classification": (),
    "token-classification": (),
    "question-answering": (),
    "fill-mask": (),
    "sparse-embedding": (),
    "late-interaction": (),
    "image-classification": (IMAGE,),
    "zero-shot-image-classification": (IMAGE,),
    "image-embedding": (IMAGE, OTHER),
    "object-detection": (IMAGE,),
    "semantic-segmentation": (IMAGE,),
    "audio-classification": (SOUND,),
    "automatic-speech-recognition": (SOUND,),
}
"""Task → the files that its endpoint gets; texts have a sample in the page."""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("chromium") / "profile") as running:
        yield running


@pytest.fixture
def tab(browser: Browser, url: str) -> Iterator[Browser]:
    """The page, which must ask the gateway alone and complain of nothing."""
    browser.size(760, 1000)
    browser.scheme("light")
    browser.open(url)
    yield browser
    elsewhere = [each for each in browser.requests if not each.startswith((url, "data:", "blob:"))]
    assert elsewhere == []
    assert browser.complaints == []


def name_of(tab: Browser, task: str) -> str:
    """The first endpoint of a task."""
    name = tab.js(f"(state.endpoints.find((one) => one.task === {task!r}) ?? {{}}).name")
    assert name, f"no endpoint does {task}"
    return str(name)


def choose(tab: Browser, task: str) -> str:
    name = name_of(tab, task)
    tab.js(f"$('endpoint').value = {name!r}; choose()")
    for number, files in enumerate([TASKS[task]] if TASKS[task] else []):
        tab.files("input[type=file]", *files)
        tab.until(f"document.querySelectorAll('.files')[{number}].childElementCount > 0")
    return name


def write(tab: Browser, field: str, text: str) -> None:
    """Put text into a field."""
    tab.js(f"$('field-{field}').value = {json.dumps(text)}; $('form').dispatchEvent(new Event('input'))")


def send(tab: Browser) -> Any:
    """Press the button; the answer's JSON."""
    tab.js("document.querySelector('#form button.main').click()")
    tab.until("/^Answer in/.test($('status').textContent) || $('status').classList.contains('bad')")
    assert not tab.js("$('status').classList.contains('bad')"), tab.js("$('status').textContent")
    return json.loads(tab.js("$('raw').textContent.replace(/ …$/, '')")) if whole(tab) else None


def whole(tab: Browser) -> bool:
    """Whether the answer's JSON is shown to its end."""
    return not tab.js("$('raw').textContent.endsWith(' …')")


def texts(tab: Browser, selector: str) -> list[str]:
    return list(tab.js(f"[...document.querySelectorAll({selector!r})].map((each) => each.innerText.trim())"))


def count(tab: Browser, selector: str) -> int:
    return int(tab.js(f"document.querySelectorAll({selector!r}).length"))


# ---- every task

DRAWN = {
    "embedding": ".heat tbody tr",
    "rerank": ".ranked li",
    "text-classification": ".bars tr",
    "zero-shot-classification": ".bars tr",
    "token-classification": ".marked",
    "question-answering": ".answer",
    "fill-mask": ".bars tr",
    "sparse-embedding": ".bars tr",
    "late-interaction": ".heat tbody tr",
    "image-classification": ".bars tr",
    "zero-shot-image-classification": ".bars tr",
    "image-embedding": ".heat tbody tr",
    "object-detection": ".picture svg",
    "semantic-segmentation": ".picture canvas",
    "audio-classification": ".bars tr",
    "automatic-speech-recognition": ".spoken",
}


@pytest.mark.parametrize("task", TASKS)
def test_answer_of_every_task_is_drawn(tab: Browser, task: str) -> None:
    choose(tab, task)
    if task == "sparse-embedding":
        write(tab, "inputs", "the cat sat on the mat and slept")
    send(tab)
    assert count(tab, f"#drawn {DRAWN[task]}") > 0
    assert tab.js("getComputedStyle($('answer')).display") != "none"
    assert " ms" in tab.js("$('status').textContent")


@pytest.mark.parametrize("task", ["image-embedding", "object-detection", "automatic-speech-recognition"])
def test_sample_files_of_the_page_are_answered(tab: Browser, task: str) -> None:
    name = name_of(tab, task)
    tab.js(f"$('endpoint').value = {name!r}; choose()")
    tab.js("document.querySelector('.drop button').click()")
    tab.until("document.querySelector('.files').childElementCount > 0")
    send(tab)
    assert count(tab, f"#drawn {DRAWN[task]}") > 0


def test_similarities_are_those_of_the_vectors(tab: Browser, url: str) -> None:
    name = choose(tab, "embedding")
    write(tab, "input", "one text\n\n  another text \none text")
    send(tab)
    rows = posted(url + "/v1/embeddings", {"model": name, "input": ["one text", "another text", "one text"]})
    vectors = [row["embedding"] for row in rows["data"]]

    def cosine(one: list[float], other: list[float]) -> float:
        def dot(a: list[float], b: list[float]) -> float:
            return sum(x * y for x, y in zip(a, b, strict=True))

        return dot(one, other) / (dot(one, one) * dot(other, other)) ** 0.5

    expected = [f"{cosine(one, other):.2f}" for one in vectors for other in vectors]
    assert texts(tab, ".heat tbody td") == expected
    assert f"{rows['usage']['total_tokens']} tokens" in tab.js("$('status').textContent")


def test_documents_come_in_order_of_their_scores(tab: Browser) -> None:
    choose(tab, "rerank")
    write(tab, "documents", "first\nsecond\nthird\nfourth")
    results = send(tab)["results"]
    words = ["first", "second", "third", "fourth"]
    assert [each.split()[0] for each in texts(tab, ".ranked li")] == [words[row["index"]] for row in results]


def test_entities_are_marked_where_they_are_though_emoji_are_before_them(tab: Browser) -> None:
    choose(tab, "token-classification")
    text = "👩‍🚀🎉 Ada Lovelace met Charles Babbage in London 🎈 with Mary of Genoa"
    write(tab, "text", text)
    spans = send(tab)
    parts = "(each) => (each.nodeName === 'MARK' ? each.firstChild : each).data"
    assert tab.js(f"[...document.querySelector('.marked').childNodes].map({parts}).join('')") == text
    marks = tab.js("[...$('drawn').querySelectorAll('mark')].map((each) => each.firstChild.data)")
    assert marks == [text[span["start"] : span["end"]] for span in spans]


def test_classifier_takes_a_pair(tab: Browser, url: str) -> None:
    name = choose(tab, "text-classification")
    single = send(tab)
    write(tab, "pair", "another text")
    answer = send(tab)
    text = tab.js("$('field-text').value")
    assert answer == posted(url + "/predict", {"model": name, "inputs": [[text, "another text"]]})
    assert answer != single


def test_image_can_be_dropped(tab: Browser) -> None:
    name = name_of(tab, "image-classification")
    tab.js(f"$('endpoint').value = {name!r}; choose()")
    tab.drop(".drop", IMAGE)
    tab.until("document.querySelectorAll('.files img').length === 1")
    send(tab)
    assert count(tab, "#drawn .bars tr") > 0


def test_boxes_have_the_places_of_the_answer(tab: Browser) -> None:
    choose(tab, "object-detection")
    objects = send(tab)
    place = "(each) => [+each.getAttribute('x'), +each.getAttribute('y')]"
    frames = tab.js(f"[...document.querySelectorAll('.picture rect')].map({place})")
    assert frames == [[one["box"]["xmin"], one["box"]["ymin"]] for one in objects]


def test_masks_cover_the_whole_image(tab: Browser) -> None:
    choose(tab, "semantic-segmentation")
    send(tab)
    shares = [float(each) for each in texts(tab, "#drawn td.number")]
    assert abs(sum(shares) - 1) < 0.01


# ---- what is written is never markup


@pytest.mark.parametrize(
    ("task", "field"),
    [("rerank", "documents"), ("token-classification", "text"), ("zero-shot-classification", "labels")],
)
def test_text_of_requests_and_answers_is_no_markup(tab: Browser, task: str, field: str) -> None:
    choose(tab, task)
    write(tab, field, "<img src=x onerror=alert(1)><script>alert(2)</script>")
    send(tab)
    assert count(tab, "#drawn img, #drawn script, #code img, #code script") == 0
    assert "onerror" in tab.js("$('drawn').textContent")
    assert "onerror" in tab.js("$('code').textContent")


EVIL = """new Promise((done) => {
  const script = document.createElement('script');
  script.textContent = 'window.evil = 1';
  document.body.append(script);
  setTimeout(() => done(window.evil), 50);
})"""


def test_policy_stops_a_script_that_is_not_the_pages(tab: Browser) -> None:
    assert tab.js(EVIL) is None
    tab.js("0")
    assert any("Content Security Policy" in each for each in tab.complaints)
    tab.complaints.clear()


# ---- the code to copy


def code(tab: Browser, language: str) -> str:
    tab.js(f"$('tab-{language}').click()")
    return str(tab.js("$('code').textContent"))


@pytest.mark.parametrize("task", TASKS)
def test_code_to_copy_gives_the_same_answer(tab: Browser, task: str, tmp_path: Path) -> None:
    choose(tab, task)
    for file in TASKS[task]:
        (tmp_path / file.name).write_bytes(file.read_bytes())
    if not TASKS[task]:
        first = next(iter(tab.js("Object.keys(state.fields)")))
        write(tab, first, tab.js(f"$('field-{first}').value") + " 'quoted' \"twice\" $HOME `x` \\n é 🎉")
    shown = send(tab)
    expected = shown if shown is not None else tab.js("$('raw').textContent")[:2000]
    curl, python = code(tab, "curl"), code(tab, "python")
    answer = json.loads(run(["bash", "-c", curl], tmp_path))
    compare(answer, expected)
    printed = python.replace("print(answer.json())", "import json; print(json.dumps(answer.json()))")
    compare(json.loads(run([sys.executable, "-c", printed], tmp_path)), expected)


@pytest.mark.parametrize(
    "task", ["rerank", "image-embedding", "image-classification", "automatic-speech-recognition"]
)
def test_javascript_to_copy_runs(tab: Browser, task: str, tmp_path: Path) -> None:
    choose(tab, task)
    for file in TASKS[task]:
        (tmp_path / file.name).write_bytes(file.read_bytes())
    shown = send(tab)
    log = "console.log(await answer.json())"
    script = code(tab, "javascript").replace(log, "console.log(JSON.stringify(await answer.json()))")
    (tmp_path / "call.mjs").write_text(script, encoding="utf-8")
    compare(json.loads(run([node(), "call.mjs"], tmp_path)), shown)


def compare(answer: Any, expected: Any) -> None:
    """The same answer; an answer's id and time differ."""
    if isinstance(expected, str):  # the start of a long answer
        assert json.dumps(answer, separators=(",", ":"))[:40] == expected[:40]
        return
    for each in (answer, expected):
        if isinstance(each, dict):
            each.pop("id", None)
    assert answer == expected


def node() -> str:
    beside = Path(sys.executable).parent / "node"
    return str(beside) if beside.exists() else "node"


def run(argv: list[str], folder: Path) -> str:
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_copy_says_that_it_has_copied(tab: Browser) -> None:
    choose(tab, "embedding")
    tab.js("$('copy').click()")
    tab.until("$('status').textContent === 'Copied'")


# ---- errors


def test_refusal_is_shown_with_its_status(tab: Browser) -> None:
    choose(tab, "fill-mask")
    write(tab, "text", "a text without a mask")
    tab.js("document.querySelector('#form button.main').click()")
    tab.until("$('status').classList.contains('bad')")
    assert tab.js("$('status').textContent").startswith("4")
    assert tab.js("$('answer').hidden") is True
    tab.complaints.clear()  # the browser logs the status


def test_file_that_is_missing_is_asked_for(tab: Browser) -> None:
    name = name_of(tab, "image-classification")
    tab.js(f"$('endpoint').value = {name!r}; choose(); document.querySelector('#form button.main').click()")
    assert tab.js("$('status').textContent") == "An input is empty."
    assert tab.js("$('request').hidden") is True


def test_gateway_with_keys_asks_for_one(browser: Browser, closed_url: str) -> None:
    browser.open(closed_url)
    assert browser.js("$('form').hidden") is True
    assert browser.js("document.activeElement.id") == "key"
    unlock = "$('unlock').dispatchEvent(new Event('submit', {cancelable: true}))"
    browser.js(f"$('key').value = 'wrong'; {unlock}")
    browser.until("$('status').textContent.includes('does not know')")
    browser.js(f"$('key').value = {KEY!r}; {unlock}")
    browser.until("!$('form').hidden")
    assert browser.js("$('unlock').hidden") is True
    choose(browser, "embedding")
    send(browser)
    for language in ("curl", "python", "javascript"):
        text = code(browser, language)
        assert KEY not in text
        assert "API_KEY" in text


# ---- keyboard, screen reader, colours


def test_everything_is_reached_by_keyboard(tab: Browser) -> None:
    choose(tab, "rerank")
    tab.js("document.activeElement.blur()")
    reached = []
    for _ in range(12):
        tab.key("Tab")
        reached.append(tab.js("document.activeElement.id || document.activeElement.textContent"))
    wanted = ["All routes", "endpoint", "field-query", "field-documents", "Send", "tab-curl", "copy", "code"]
    assert [each for each in reached if each in wanted][: len(wanted)] == wanted


def test_ctrl_and_enter_send(tab: Browser) -> None:
    choose(tab, "text-classification")
    tab.js("$('field-text').focus()")
    tab.key("Enter", modifiers=2)
    tab.until("/^Answer in/.test($('status').textContent)")


def test_arrows_change_the_language_of_the_code(tab: Browser) -> None:
    choose(tab, "embedding")
    tab.js("$('tab-curl').focus()")
    tab.key("ArrowRight")
    assert tab.js("document.activeElement.id") == "tab-python"
    assert tab.js("$('code').textContent").startswith("import requests")
    tab.key("ArrowLeft")
    tab.key("ArrowLeft")
    selected = "document.querySelectorAll('[aria-selected=true]')"
    assert tab.js(f"[...{selected}].map((each) => each.id)") == ["tab-javascript"]


NAMED = ("textbox", "button", "combobox", "tab", "link", "image", "region", "tabpanel", "heading")


@pytest.mark.parametrize("task", TASKS)
def test_screen_reader_has_a_name_for_everything(tab: Browser, task: str) -> None:
    choose(tab, task)
    send(tab)
    nodes = tab.do("Accessibility.getFullAXTree")["nodes"]
    unnamed = [
        node["role"]["value"]
        for node in nodes
        if not node.get("ignored")
        and node["role"]["value"] in NAMED
        and not node.get("name", {}).get("value")
    ]
    assert unnamed == []
    status = [node for node in nodes if node["role"]["value"] == "status"]
    assert len(status) == 1


COLOURS = """(() => {
  const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const luminance = (color) => {
    pen.fillStyle = color;
    pen.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...pen.getImageData(0, 0, 1, 1).data].map((part) => part / 255)
      .map((part) => (part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const background = (node) => {
    for (; node; node = node.parentElement) {
      const color = getComputedStyle(node).backgroundColor;
      if (color !== "rgba(0, 0, 0, 0)") return color;
    }
  };
  const texts = [...document.querySelectorAll("main *")].filter((node) => node.offsetParent
    && [...node.childNodes].some((each) => each.nodeType === 3 && each.data.trim()));
  return texts.map((node) => {
    const [low, high] = [getComputedStyle(node).color, background(node)].map(luminance).sort((a, b) => a - b);
    return [(high + 0.05) / (low + 0.05), `${node.tagName} ${node.textContent.slice(0, 30)}`];
  }).sort((a, b) => a[0] - b[0])[0];
})()"""
"""The lowest contrast of a text (WCAG 2.2), and where it is."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("task", ["embedding", "token-classification", "rerank", "question-answering"])
def test_text_stands_out_from_its_background(tab: Browser, scheme: str, task: str) -> None:
    tab.scheme(scheme)
    choose(tab, task)
    send(tab)
    contrast, where = tab.js(COLOURS)
    assert contrast >= 4.5, where


def test_page_follows_the_systems_colours(tab: Browser) -> None:
    seen = set()
    for scheme in ("light", "dark"):
        tab.scheme(scheme)
        seen.add(tab.js("getComputedStyle(document.body).backgroundColor"))
    assert len(seen) == 2


def test_narrow_window_needs_no_scrolling_to_the_side(tab: Browser) -> None:
    tab.size(360, 700)
    choose(tab, "embedding")
    send(tab)
    assert tab.js("document.documentElement.scrollWidth <= innerWidth") is True


# ---- the documentation


def test_docs_load_nothing_and_complain_of_nothing(tab: Browser, url: str) -> None:
    tab.do("Page.navigate", url=f"{url}/docs")
    tab.until("document.readyState === 'complete' && document.querySelectorAll('pre').length > 3")
    assert count(tab, "script") == 0


def posted(url: str, body: Any) -> Any:
    request = Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urlopen(request) as answer:
        return json.loads(answer.read())


# ---- pictures

PICTURES = {
    "heat_map": "embedding",
    "ranked": "rerank",
    "bars": "zero-shot-classification",
    "entities": "token-classification",
    "answer": "question-answering",
    "mask": "fill-mask",
    "boxes": "object-detection",
    "areas": "semantic-segmentation",
    "transcript": "automatic-speech-recognition",
}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PICTURES)
def test_picture_of_every_kind_of_answer(tab: Browser, name: str, scheme: str, tmp_path: Path) -> None:
    tab.scheme(scheme)
    choose(tab, PICTURES[name])
    send(tab)
    folder = Path(os.environ.get("TRB_PICTURES") or tmp_path)
    path = folder / f"gateway_{name}_{scheme}.png"
    tab.picture(path)
    assert 5_000 < path.stat().st_size < 200_000
