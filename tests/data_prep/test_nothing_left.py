"""A source of which nothing is left: the error has every reason, an example and the searched folders."""

from pathlib import Path

from tests.helpers.foreign_formats import SCREEN, golden, save, write_aitz, write_seeclick
from tests.helpers.prepared_data import refused


def test_missing_images_are_named_with_the_searched_folders(tmp_path: Path) -> None:
    episode = golden()[0]
    source = tmp_path / "seeclick"
    write_seeclick(source, [episode], root="data/images")  # two levels down, where no reader looks
    save(source / "others" / "x.png", SCREEN)
    sentence = refused(tmp_path, str(source), str(tmp_path / "out"), "--format", "seeclick")
    assert (
        f"Dropped steps: {len(episode.steps)} image missing. Dropped episodes: 1 no usable step." in sentence
    )
    assert "step 0 of episode 0 of aitw_data_train.json: there is no image 'general/0_0.png' in " in sentence
    assert sentence.endswith(" in seeclick, seeclick/data, seeclick/others")


def test_many_searched_folders_are_counted(tmp_path: Path) -> None:
    write_seeclick(tmp_path / "seeclick", golden()[:1], root="data/images")
    for number in range(20):
        (tmp_path / "seeclick" / f"{number:02d}").mkdir()
    sentence = refused(tmp_path, str(tmp_path / "seeclick"), str(tmp_path / "out"), "--format", "seeclick")
    assert sentence.endswith("seeclick/04, 16 more")


def test_images_of_aitz(tmp_path: Path) -> None:
    write_aitz(tmp_path / "aitz", golden()[:1])
    for image in (tmp_path / "aitz").rglob("*_0.png"):
        image.unlink()
    arguments = str(tmp_path / "aitz"), str(tmp_path / "out"), "--format", "aitz", "--missing-steps", "drop"
    sentence = refused(tmp_path, *arguments)
    assert "episode with a gap, 1 image missing" in sentence
    assert "in aitz/train/general/GENERAL-0, aitz/train/general, aitz/train, aitz" in sentence
