"""What is said in a language without a word list is not read as English; English and Chinese are read as before."""

from __future__ import annotations

import pytest

from openclaw_rl.judge.rules import verdict_of
from openclaw_rl.types import Verdict
from tests.unit.judge.talk import called, said, talk

SAID = {
    "German": """
        Kürzer bitte.
        Nein, das ist falsch.
        Viel zu lang, bitte nur ein Satz.
        Bitte auf Deutsch antworten!
        Danke, das hilft mir sehr.
        Ich wollte keine Liste, sondern einen Fließtext.
        Warum immer diese Emojis?
        Das war super, genau so weitermachen.
        Du hast die Quellen vergessen.
        Zu förmlich. Duz mich bitte.
        Bitte im Fließtext und ohne Aufzählungen
        Kürzer!""",
    "French": """
        Plus court, s'il te plaît.
        Non, ce n'est pas ça du tout.
        Trop long, une seule phrase suffit.
        Merci, c'est parfait !
        Tu as oublié les sources.
        Arrête avec les listes à puces.
        Réponds en français la prochaine fois.
        Je voulais un tableau, pas une liste.
        C'est beaucoup trop formel pour moi.
        Pourquoi toujours ces emojis ?""",
    "Spanish": """
        Más corto, por favor.
        No, eso no es correcto.
        Demasiado largo, con una frase basta.
        Muchas gracias, está perfecto.
        Te olvidaste de las fuentes.
        No uses listas.
        Responde en español la próxima vez.
        Quería una tabla, no una lista.
        Es demasiado formal. Tutéame.
        ¿Por qué siempre los emojis?""",
    "Italian": """
        Più breve, per favore.
        No, non è quello che ho chiesto.
        Troppo lungo, basta una frase.
        Grazie mille, è perfetto!
        Hai dimenticato le fonti.
        Basta con gli elenchi puntati.
        Rispondi in italiano la prossima volta.
        Volevo una tabella, non un elenco.
        È troppo formale per me.
        Perché sempre le emoji?""",
    "Portuguese": """
        Mais curto, por favor.
        Não, isso está errado.
        Muito longo, uma frase chega.
        Obrigado, ficou perfeito!
        Você esqueceu as fontes.
        Não use listas.
        Responda em português da próxima vez.
        Eu queria uma tabela, não uma lista.
        Está formal demais para mim.
        Por que sempre os emojis?""",
    "Dutch": """
        Korter graag.
        Nee, dat klopt niet.
        Veel te lang, één zin is genoeg.
        Bedankt, dit is perfect!
        Je bent de bronnen vergeten.
        Geen opsommingen meer gebruiken.
        Antwoord voortaan in het Nederlands.
        Ik wilde een tabel, geen lijst.
        Dit is veel te formeel voor mij.
        Waarom altijd die emoji's?""",
    "Russian": """
        Короче, пожалуйста.
        Нет, это неправильно.
        Слишком длинно, хватит одного предложения.
        Спасибо, отлично!
        Ты забыл источники.
        Хватит списков.
        Отвечай по-русски.
        Я хотел таблицу, а не список.
        Слишком официально.
        Зачем опять эти эмодзи?""",
    "Japanese": """
        もっと短くしてください。
        いいえ、違います。
        長すぎます。一文でお願いします。
        ありがとうございます、完璧です！
        出典を忘れています。
        箇条書きはやめてください。
        日本語で答えて。
        表が欲しかったのに、リストじゃない。
        丁寧すぎます。
        なぜいつも絵文字なんですか？""",
    "Turkish": """
        Daha kısa lütfen.
        Hayır, bu yanlış.
        Çok uzun, bir cümle yeter.
        Teşekkürler, mükemmel oldu!
        Kaynakları unuttun.
        Artık madde işareti kullanma.
        Bir dahaki sefere Türkçe cevap ver.
        Liste değil tablo istedim.
        Benim için fazla resmi.
        Neden hep emoji kullanıyorsun?""",
    "Swedish": """
        Kortare, tack.
        Nej, det stämmer inte.
        Alldeles för långt, en mening räcker.
        Tack, det är perfekt!
        Du glömde källorna.
        Sluta med punktlistor.
        Svara på svenska nästa gång.
        Jag ville ha en tabell, inte en lista.
        Det är för formellt för mig.
        Varför alltid emojis?""",
    "Finnish": """
        Liian pitkä vastaus, kiitos vain.
        Käytä lyhyempiä lauseita ensi kerralla.""",
    "Korean": """
        더 짧게 해 주세요.
        틀렸어요.""",
    "Arabic": """
        أقصر من فضلك
        هذا خطأ""",
}
REACTIONS = [(name, line.strip()) for name, lines in SAID.items() for line in lines.strip().splitlines()]


def after(*following: str) -> Verdict:
    return verdict_of(talk(*following, request="Explain recursion.", reply="Recursion is a function that ..."))


@pytest.mark.parametrize(("name", "reaction"), REACTIONS)
def test_the_rules_abstain_in_a_language_that_they_do_not_know_and_say_what_helps(name: str, reaction: str) -> None:
    verdict = after(reaction)
    assert (verdict.outcome, verdict.hints) == ("abstained", ()), verdict
    assert verdict.reason.startswith("unknown language: the rules read English and Chinese; set evaluation.judge=")


@pytest.mark.parametrize(
    ("reaction", "score"),
    [
        ("ok", 0),
        ("Thx u r gr8", 1),
        ("k thx", 1),
        ("lol no", -1),
        ("thats wrogn, pls shoter", -1),
        ("too long imho tbh", -1),
        ("Charlotte Brontë, surely not. That is wrong.", -1),
        ("The café in Zürich is great, thanks!", 1),
        ("Nope. José García wrote it, you got it wrong.", -1),
        ("a résumé should be shorter", -1),
        ("wrong, el niño is warm", -1),
        ("太长了，用 Python 写", -1),
        ("谢谢", 1),
        ("不对", -1),
        ("Danke!", 1),
        ("merci beaucoup", 1),
        ("👍", 1),
        ("👎", -1),
    ],
)
def test_english_and_chinese_are_read_with_slang_typing_errors_and_names(reaction: str, score: int) -> None:
    assert after(reaction).score == score


@pytest.mark.parametrize(
    "reaction", ["1234", "x = y + 1", "`foo_bar()`", "Paul Thomas Anderson", "Sydney.", "asdfgh", "...", "zzz"]
)
def test_numbers_code_and_names_are_no_unknown_language(reaction: str) -> None:
    assert "unknown" not in after(reaction).reason


SHORT = """
    please kürzer
    kurz please
    In simple Worten
    as Liste
    in one Satz
    Mehr Details
    No funciona
    no sirve
    menos formal
    Sprich English
    Alles klar
    Was?
    Pourquoi si long?
    短く
    簡潔に
    日本語で
    prima
    toll
    genial
    parfait
    bueno
    dobrze"""


@pytest.mark.parametrize("reaction", [line.strip() for line in SHORT.strip().splitlines()])
def test_a_short_message_with_a_word_that_is_not_english_is_not_read(reaction: str) -> None:
    verdict = after(reaction)
    assert (verdict.outcome, verdict.hints) == ("abstained", ()), verdict
    assert verdict.reason.startswith("unknown language")


@pytest.mark.parametrize(
    ("reaction", "score"),
    [
        ("in French", -1),
        ("as JSON please", -1),
        ("in Rust", -1),
        ("without tables", -1),
        ("No, Sydney.", -1),
        ("wrogn", -1),
        ("too verbsoe", -1),
        ("fewer adjectives please", -1),
        ("less naïve please", -1),
        ("fix main.py", -1),
        ("great stuff", 1),
        ("太短", -1),
    ],
)
def test_a_short_message_in_english_or_chinese_is_read(reaction: str, score: int) -> None:
    assert after(reaction).score == score


@pytest.mark.parametrize(
    ("reaction", "score"),
    [
        ("Das war nix. Please make it shorter.", -1),
        ("Bitte kürzer. That is way too long for me.", -1),
        ("Спасибо! This is exactly what I wanted, great.", 1),
        ("太长了。\nもっと短くしてください。", -1),
    ],
)
def test_of_a_mixed_message_the_sentences_in_a_known_language_count(reaction: str, score: int) -> None:
    verdict = after(reaction)
    assert verdict.score == score
    assert not any("kürzer" in hint or "war" in hint for hint in verdict.hints)


@pytest.mark.parametrize(
    "reaction",
    [
        "Bravo ! Mais trop long pour moi.",
        "Ok. Aber bitte kürzer.",
        "Danke. Leider viel zu lang.",
        "Super! Nur zu lang.",
    ],
)
def test_a_word_that_languages_share_does_not_stand_for_the_rest(reaction: str) -> None:
    assert after(reaction).outcome == "abstained"


@pytest.mark.parametrize(
    ("reaction", "score"),
    [
        ("Genau so 👍", 1),
        ("Parfait ❤️", 1),
        ("Ganz falsch 👎", -1),
        ("encore des listes 🙄", -1),
        ("Bitte kürzer 🙏", None),
        ("zu lang 😊", None),
    ],
)
def test_signs_are_read_in_any_language_but_for_mere_politeness(reaction: str, score: int | None) -> None:
    assert after(reaction).score == score


def test_the_same_request_again_was_not_answered_in_any_language() -> None:
    asked = "Wie viele Beine hat eine Spinne?"
    assert verdict_of(talk(asked, request=asked, reply="Insekten haben sechs.")).score == -1


def test_a_tool_that_worked_does_not_overrule_words_that_nobody_read() -> None:
    result = said("tool", "3 files", tool_call_id="c1")
    assert verdict_of(talk(result, reply=called("search"))).score == 0
    assert verdict_of(talk(result, "Das ist leider ganz falsch.", reply=called("search"))).outcome == "abstained"


def test_a_text_that_is_brought_along_may_be_in_any_language() -> None:
    verdict = after("Great. Now translate this mail:\nSehr geehrte Frau Müller, das ist leider viel zu lang für uns.")
    assert verdict.score == 1
