"""Text that nobody wrote is told from language and code."""

import base64
import json
import random
import string
from collections.abc import Callable

import pytest

from monitor.prompts.gibberish import recurrence, why_random
from monitor.prompts.sets import bundled_directory, load_prompt_sets
from monitor.prompts.words import words

LANGUAGES = {
    "Czech": "Napiš krátký příběh o strážci majáku, který na břehu najde láhev se vzkazem a rozhodne se na něj "
    "odpovědět, i když neví, komu odpovídá ani jestli ten člověk ještě žije.",
    "Finnish": "Kirjoita lyhyt kertomus majakanvartijasta, joka löytää rannalta pullopostin ja päättää vastata siihen, "
    "vaikka hän ei tiedä, kenelle hän vastaa tai onko lähettäjä enää elossa.",
    "Hungarian": "Írj egy rövid történetet egy világítótoronyőrről, aki a parton talál egy palackpostát, és úgy dönt, "
    "hogy válaszol rá, bár nem tudja, kinek ír, és hogy az illető él-e még.",
    "Indonesian": "Tuliskan cerita pendek tentang penjaga mercusuar yang menemukan botol berisi surat di pantai lalu "
    "memutuskan untuk membalasnya meskipun tidak mengetahui siapa pengirimnya.",
    "Turkish": "Sahilde içinde mektup olan bir şişe bulan ve kime yazdığını bilmediği halde ona cevap vermeye karar "
    "veren bir deniz feneri bekçisi hakkında kısa bir hikâye yaz.",
    "Vietnamese": "Hãy viết một câu chuyện ngắn về người gác hải đăng nhặt được một lá thư trong chai trên bãi biển và "
    "quyết định trả lời dù không biết người gửi là ai.",
    "Russian": "Напиши короткий рассказ о смотрителе маяка, который находит на берегу бутылку с письмом и решает "
    "ответить, хотя не знает, кому он отвечает и жив ли ещё этот человек.",
    "Greek": "Γράψε μια σύντομη ιστορία για έναν φαροφύλακα που βρίσκει στην ακτή ένα μπουκάλι με ένα γράμμα και "
    "αποφασίζει να απαντήσει, αν και δεν ξέρει σε ποιον γράφει.",
    "Arabic": "اكتب قصة قصيرة عن حارس منارة يجد على الشاطئ زجاجة فيها رسالة ويقرر أن يرد عليها رغم أنه لا يعرف من "
    "أرسلها ولا إن كان لا يزال على قيد الحياة.",
    "Hebrew": "כתוב סיפור קצר על שומר מגדלור שמוצא על החוף בקבוק ובו מכתב ומחליט לענות עליו, אף שאינו יודע למי הוא "
    "עונה ואם אותו אדם עדיין חי.",
    "Hindi": "एक प्रकाशस्तंभ के रखवाले के बारे में एक छोटी कहानी लिखो जिसे समुद्र तट पर एक बोतल में चिट्ठी मिलती है और वह "
    "उसका उत्तर देने का निश्चय करता है।",
    "Thai": "เขียนเรื่องสั้นเกี่ยวกับคนเฝ้าประภาคารที่พบขวดใส่จดหมายบนชายหาดและตัดสินใจตอบจดหมายนั้นทั้งที่ไม่รู้ว่าใครเป็นคนส่ง",
    "Chinese": "写一个短篇故事:一位灯塔看守人在海滩上发现一个装着信的瓶子,虽然他不知道是谁写的,"
    "也不知道那个人是否还活着,他还是决定回信。",
    "Traditional Chinese": "寫一個短篇故事:一位燈塔看守人在海灘上發現一個裝著信的瓶子,"
    "雖然他不知道是誰寫的,還是決定回信。",
    "Japanese": "灯台守が浜辺で手紙の入った瓶を見つけ、誰が書いたのかも、その人がまだ生きているのかも分からないまま、"
    "返事を書こうと決める短い物語を書いてください。",
    "Korean": "바닷가에서 편지가 든 병을 발견한 등대지기가 누가 보냈는지, 그 사람이 아직 살아 있는지도 모르면서 "
    "답장을 쓰기로 결심하는 짧은 이야기를 써 주세요.",
}
CODE = {
    "Python": "def merge(left, right):\n    result = []\n    while left and right:\n        source = left if left[0] "
    "<= right[0] else right\n        result.append(source.pop(0))\n    return result + left + right\n",
    "SQL": "SELECT c.name, SUM(o.total) AS revenue FROM customers c JOIN orders o ON o.customer_id = c.id WHERE "
    "o.created_at >= DATE '2024-01-01' GROUP BY c.name HAVING SUM(o.total) > 1000 ORDER BY revenue DESC;",
    "C": "static int cmp(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }\nint main(void) "
    '{ int v[] = {3, 1, 2}; qsort(v, 3, sizeof v[0], cmp); printf("%d\\n", v[0]); return 0; }',
    "diff": "--- a/app.py\n+++ b/app.py\n@@ -1,4 +1,4 @@\n def total(items):\n-    return sum(i.price for i in items)\n"
    "+    return sum(i.price * i.count for i in items)\n",
    "JSON": json.dumps({"users": [{"id": n, "name": f"user{n}", "tags": ["a", "b"]} for n in range(12)]}),
    "hash in a question": "Commit 9f86d081884c7d659a2feaa0c55ad015 broke the build and "
    "2c26b46b68ffc68ff99b453c1d30413413422d70 did not. How do I find which commit in between is to blame?",
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_language_is_not_random(language: str) -> None:
    assert why_random(LANGUAGES[language]) is None


@pytest.mark.parametrize("kind", CODE)
def test_code_is_not_random(kind: str) -> None:
    assert why_random(CODE[kind]) is None


def test_no_bundled_prompt_is_random() -> None:
    for prompt_set in load_prompt_sets(bundled_directory()).values():
        for prompt in prompt_set.prompts:
            assert why_random("\n".join(prompt.turns)) is None, prompt.question_id


def test_a_text_in_many_languages_is_not_random() -> None:
    assert why_random("\n".join(LANGUAGES.values())) is None


def letters(alphabet: str, count: int, chance: random.Random) -> str:
    return " ".join("".join(chance.choices(alphabet, k=chance.randint(1, 9))) for _ in range(count))


def vocabulary() -> list[str]:
    """Pieces as a tokenizer has them: words with the space before, beginnings, ends, in several spellings."""
    text = " ".join("\n".join(p.turns) for s in load_prompt_sets(bundled_directory()).values() for p in s.prompts)
    whole = sorted(set(words(text)))
    pieces = {f" {word}" for word in whole[::2]} | {f" {word.title()}" for word in whole[1::4]}
    pieces |= {word[: len(word) // 2 + 1] for word in whole} | {word[len(word) // 2 :].upper() for word in whole[::5]}
    return sorted(pieces | {word[-4:] for word in whole})


RANDOM: dict[str, Callable[[random.Random], str]] = {
    "tokens of a vocabulary": lambda chance: "".join(chance.choices(vocabulary(), k=128)),
    "words of a dictionary": lambda chance: " ".join(
        chance.sample([piece.strip() for piece in vocabulary() if piece[0] == " "], k=120)
    ),
    "words of many languages": lambda chance: " ".join(
        chance.sample([word for text in LANGUAGES.values() for word in set(text.split())], k=60)
    ),
    "Latin letters": lambda chance: letters(string.ascii_lowercase, 40, chance),
    "Cyrillic letters": lambda chance: letters("абвгдежзийклмнопрстуфхцчшщъыьэюя", 120, chance),
    "Greek letters": lambda chance: letters("αβγδεζηθικλμνξοπρστυφχψω", 120, chance),
    "Arabic letters": lambda chance: letters("ابتثجحخدذرزسشصضطظعغفقكلمنهوي", 120, chance),
    "letters as common as in English": lambda chance: letters(
        "eeeeeettttaaaaoooiiinnnssshhrrddllcumwfgypbvk", 120, chance
    ),
    "printable characters": lambda chance: "".join(chance.choices(string.printable[:95], k=300)),
    "Han characters": lambda chance: "".join(chr(chance.randint(0x4E00, 0x9FFF)) for _ in range(60)),
    "Hangul syllables": lambda chance: " ".join(
        "".join(chr(chance.randint(0xAC00, 0xD7A3)) for _ in range(3)) for _ in range(20)
    ),
    "code points": lambda chance: "".join(chr(chance.randint(0x21, 0xD7FF)) for _ in range(200)),
    "all code points": lambda chance: "".join(chr(chance.randint(0xE000, 0x10FFFF)) for _ in range(200)),
    "broken UTF-8": lambda chance: chance.randbytes(400).decode("utf-8", errors="replace"),
    "hexadecimal": lambda chance: " ".join(chance.randbytes(8).hex() for _ in range(20)),
    "base64": lambda chance: base64.b64encode(chance.randbytes(150)).decode(),
}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", RANDOM)
def test_what_is_drawn_by_chance_is_random(kind: str, seed: int) -> None:
    assert why_random(RANDOM[kind](random.Random(seed))) is not None


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("tokens of a vocabulary", "words glued together from pieces"),
        ("words of a dictionary", "words that never recur"),
        ("words of many languages", "scripts that change from word to word"),
        ("Latin letters", "letters that are all equally common"),
        ("Cyrillic letters", "letters that do not depend on each other"),
        ("Han characters", "Han characters that are not in use"),
        ("Hangul syllables", "Hangul characters that are not in use"),
        ("all code points", "characters that belong to no script"),
        ("base64", "encoded bytes"),
    ],
)
def test_the_reason_says_what_gave_it_away(kind: str, reason: str) -> None:
    assert why_random(RANDOM[kind](random.Random(7))) == reason


def test_a_question_in_front_does_not_hide_random_padding() -> None:
    padding = " ".join(RANDOM["words of a dictionary"](random.Random(seed)) for seed in range(7))
    assert why_random(LANGUAGES["Indonesian"] + "\n" + padding) == "words that never recur"


def test_one_list_of_names_in_a_long_text_does_not_make_it_random() -> None:
    text = max(("\n".join(prompt.turns) for prompt in load_prompt_sets(bundled_directory())["rag"].prompts), key=len)
    names = RANDOM["words of a dictionary"](random.Random(3))
    assert len(words(text)) > 800
    assert why_random(text + "\n" + names) is None


def test_recurrence_is_the_share_of_words_seen_before() -> None:
    assert recurrence(["a", "b", "a", "a"]) == 0.5
    assert recurrence(["a", "b"]) == 0.0
    assert recurrence([]) == 0.0


def test_words_have_no_case_accent_or_number() -> None:
    assert words("Où est l'ÉTÉ, x2 42?") == ["ou", "est", "l", "ete", "x"]


def test_scripts_without_spaces_are_cut_at_every_character() -> None:
    assert words("灯台 です。") == ["灯", "台", "て", "す"]
    assert words("등대지기 이야기") == ["등대지기", "이야기"]
