"""Compares Strata's folders with the Python packages that define their format, in both directions.

Usage: hugging_face_check.py STRATA [unittest's arguments]

STRATA is the program. Models are tiny, of random weights drawn wide enough that greedy text varies.
"""

import contextlib
import io
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

try:
    import safetensors
    import tokenizers
    import torch
    import transformers
except ImportError as error:
    sys.exit(f"{error}. HINT: bash tools/setup.sh --tests")

STRATA = ""
VOCABULARY = 400
LENGTH = 24  # tokens of a training sample
NEW_TOKENS = 20
END = "<|endoftext|>"
OWN_END = VOCABULARY - 1  # its id in a tokenizer of Strata's; of the packages', 0
PROMPTS = ["Once upon", "the 12 kings' horses,  they'll ", "na\u00efve \u65e5\u672c \U0001f600"]
ODD_TEXTS = [
    "plain",
    " leading,  double and trailing spaces  ",
    "tabs\tand\r\nlines\n\n\nmany",
    "it's we'll I'D don\u2019t",
    "na\u00efve e\u0301 \ufb01 \u00df \u0130",
    "\u65e5\u672c\u8a9e \ud55c\uad6d\uc5b4 \u0627\u0644\u0639\u0631\u0628",
    "\u0939\u093f\u0928\u094d\u0926\u0940",
    "\U0001f469\u200d\U0001f4bb\U0001f1ea\U0001f1fa \u0663\u00b2\u2167 \u2028\u00a0\u3000\ufeff",
    "\x00\x01\x7f \ufffd \U0010ffff",
]


def sample_text():
    """Words of random syllables, the same each time."""
    draw = random.Random(7)
    syllables = "ka lo mi ster the on ce ing up or \u00e9t \u65e5".split()
    words = ["".join(draw.choices(syllables, k=draw.randint(1, 4))) for _ in range(300)]
    lines = [" ".join(draw.choices(words, k=9)) for _ in range(120)]
    return ".\n".join(lines) + ", 12 it's.\n"


def model_config(tied, end):
    return transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=96, n_embd=32, n_layer=3, n_head=4, resid_pdrop=0.0,
        embd_pdrop=0.0, attn_pdrop=0.0, initializer_range=0.3, tie_word_embeddings=tied,
        bos_token_id=end, eos_token_id=end)


def stored_tensors(folder):
    """Every tensor of the folder's safetensors files by name; a name twice is an error."""
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safetensors.safe_open(path, framework="pt") as file:
            for name in file.keys():
                assert name not in tensors, f"{name} is in two files"
                tensors[name] = file.get_tensor(name)
    return tensors


class FormatTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="strata-formats-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        torch.manual_seed(3)
        torch.set_num_threads(1)
        self.text = self.folder / "text.txt"
        self.text.write_text(sample_text(), encoding="utf-8")

    def strata(self, *args):
        """The output of the command, which must succeed."""
        ended = subprocess.run([STRATA, *map(str, args)], cwd=self.folder, stdin=subprocess.DEVNULL,
                               capture_output=True, timeout=120)
        self.assertEqual(ended.returncode, 0, ended.stderr.decode(errors="replace"))
        return ended.stdout

    def train_and_export(self, model, data, length, *more):
        """Trains, exports. Returns the exported folder and the run's summary."""
        self.strata("train", "--model", model, "--data", data, "--sequence-length", length,
                    "--output-dir", "run", "--no-progress", *more)
        self.strata("export", "--checkpoint", "run/latest", "--output-dir", "exported")
        summary = json.loads((self.folder / "run/summary.json").read_text())
        return self.folder / "exported", summary

    def export_of_own_model(self, tied):
        config = self.folder / "config.json"
        config.write_text(model_config(tied, OWN_END).to_json_string())
        exported, _ = self.train_and_export(config, self.text, LENGTH, "--max-steps", 2,
                                            "--per-device-train-batch-size", 4)
        return exported

    def foreign_folder(self, tied, **options):
        """A model and a tokenizer made and saved by the packages. Returns (folder, model)."""
        folder = self.folder / "foreign"
        model = transformers.GPT2LMHeadModel(model_config(tied, 0)).eval()
        with torch.no_grad():  # Initially biases are 0 and scales 1, whatever their name.
            for name, parameter in model.named_parameters():
                if parameter.dim() == 1:
                    parameter.add_(torch.randn_like(parameter) * 0.1)
        model.save_pretrained(folder, safe_serialization=True, **options)
        trained = tokenizers.ByteLevelBPETokenizer()
        with contextlib.redirect_stdout(io.StringIO()):
            trained.train([str(self.text)], vocab_size=VOCABULARY, min_frequency=1,
                          special_tokens=[END], show_progress=False)
        self.assertEqual(trained.get_vocab_size(), VOCABULARY)
        transformers.PreTrainedTokenizerFast(
            tokenizer_object=trained._tokenizer, bos_token=END, eos_token=END, unk_token=END,
        ).save_pretrained(folder)
        return folder, model

    def expect_same_text(self, folder, model, tokenizer):
        """Greedy text of both for each prompt is the same, and not one token again and again."""
        self.assertEqual(model.config.eos_token_id, tokenizer.eos_token_id)
        distinct = set()
        for prompt in PROMPTS:
            ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
            made = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False,
                                  max_new_tokens=NEW_TOKENS, pad_token_id=0)[0].tolist()
            distinct.update(made[ids.shape[1]:])
            if made[-1] == tokenizer.eos_token_id:
                made.pop()
            expected = tokenizer.decode(made, clean_up_tokenization_spaces=False)
            out = self.strata("generate", "--model", folder, "--greedy", "--prompt", prompt,
                              "--max-new-tokens", NEW_TOKENS)
            # Tokens are bytes: both show U+FFFD for what is no UTF-8.
            self.assertEqual(out.decode(errors="replace"), expected + "\n")
        self.assertGreaterEqual(len(distinct), 8, "dull texts show little")

    def expect_same_tensors(self, tensors, state):
        """Names, shapes, dtypes and bits."""
        self.assertEqual(sorted(tensors), sorted(state))
        for name, tensor in tensors.items():
            self.assertEqual(tensor.dtype, torch.float32, name)
            self.assertEqual(tensor.shape, state[name].shape, name)
            self.assertEqual(tensor.numpy().tobytes(), state[name].numpy().tobytes(), name)


class ExportTest(FormatTest):
    """What Strata writes, read by the packages."""

    def check(self, tied):
        folder = self.export_of_own_model(tied)
        model, report = transformers.GPT2LMHeadModel.from_pretrained(
            folder, output_loading_info=True)
        self.assertFalse(any(report.values()), report)
        self.assertEqual(model.config.tie_word_embeddings, tied)
        state = model.state_dict()
        is_tied = torch.equal(state["lm_head.weight"], state["transformer.wte.weight"])
        self.assertEqual(is_tied, tied)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self.assertEqual(len(tokenizer), VOCABULARY)
        self.expect_same_text(folder, model.eval(), tokenizer)

    def test_transformers_loads_a_tied_model(self):
        self.check(tied=True)

    def test_transformers_loads_a_model_with_its_own_head(self):
        self.check(tied=False)

    def test_safetensors_reads_every_tensor(self):
        for tied in (True, False):
            tensors = stored_tensors(self.export_of_own_model(tied))
            expected = {
                name: tuple(tensor.shape)
                for name, tensor in transformers.GPT2LMHeadModel(
                    model_config(tied, OWN_END)).state_dict().items()
                if not (tied and name == "lm_head.weight")
            }
            self.assertEqual({name: tuple(t.shape) for name, t in tensors.items()}, expected)
            self.assertEqual({t.dtype for t in tensors.values()}, {torch.float32})

    def test_tokenizers_reads_the_tokenizer(self):
        folder = self.export_of_own_model(tied=True)
        tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.assertEqual(tokenizer.get_vocab_size(), VOCABULARY)
        for text in ODD_TEXTS:
            ids = tokenizer.encode(text).ids
            self.assertEqual(tokenizer.decode(ids, skip_special_tokens=False), text)
        self.assertEqual(tokenizer.encode("a" + END).ids[-1], OWN_END)
        sample = sample_text()
        merged = len(tokenizer.encode(sample).ids)
        self.assertLess(merged, len(sample.encode()) / 2, "its merges apply")


class ImportTest(FormatTest):
    """What the packages write, read by Strata."""

    def check(self, tied, shards=1, **options):
        folder, model = self.foreign_folder(tied, **options)
        files = len(list(folder.glob("*.safetensors")))
        (self.assertEqual if shards == 1 else self.assertGreaterEqual)(files, shards)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self.expect_same_text(folder, model, tokenizer)

        # One step on a text of one sample, without a learning rate.
        line = " ".join(ODD_TEXTS[:4])
        ids = tokenizer(line)["input_ids"]
        data = self.folder / "line.txt"
        data.write_bytes(line.encode())
        exported, summary = self.train_and_export(
            folder, data, len(ids), "--max-steps", 1, "--learning-rate", 0,
            "--per-device-train-batch-size", 1)
        batch = torch.tensor([ids])
        with torch.no_grad():
            loss = model(batch, labels=batch).loss.item()
        self.assertAlmostEqual(summary["losses"][0], loss, delta=1e-5)
        state = model.state_dict()
        if tied:
            del state["lm_head.weight"]
        self.expect_same_tensors(stored_tensors(exported), state)

    def test_a_tied_model(self):
        self.check(tied=True)

    def test_a_model_with_its_own_head(self):
        self.check(tied=False)

    def test_a_model_in_several_files(self):
        self.check(tied=False, shards=3, max_shard_size="60KB")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    STRATA = str(pathlib.Path(sys.argv.pop(1)).resolve())
    transformers.logging.set_verbosity_error()
    unittest.main(verbosity=2)
