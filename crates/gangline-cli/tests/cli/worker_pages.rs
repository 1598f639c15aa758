//! The workers of docs/warm-workers.md and docs/from-chassis.md do what the pages say.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::examples::blocks;
use crate::support::Place;

#[track_caller]
fn block(language: &str) -> String {
    block_of("warm-workers.md", language)
}

/// The only block of a page in this language.
#[track_caller]
fn block_of(page: &str, language: &str) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
    let page = fs::read_to_string(page).unwrap();
    let begin = format!("\n```{language}\n");
    let mut blocks = page.split(&*begin).skip(1);
    let block = blocks.next().unwrap().split("```").next().unwrap().to_owned();
    assert!(blocks.next().is_none(), "{language}");
    block
}

/// The only script of a page that ends with a worker.
fn worker_of(page: &str) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
    let page = fs::read_to_string(page).unwrap();
    let scripts = blocks(&page, "python").into_iter();
    let mut workers = scripts.filter(|script| script.contains("gangline.worker("));
    let worker = workers.next().unwrap().to_owned();
    assert!(workers.next().is_none());
    worker
}

/// Its model has room for four, and knows no negative numbers.
const MODEL: &str = r#"
import math
def load_model():
    def model(numbers):
        print("a greeting of a library")
        if len(numbers) > 4:
            raise MemoryError
        return [float("nan") if number == "nan" else math.sqrt(number) for number in numbers]
    return model
"#;

#[test]
fn the_loop_in_python_takes_lists() {
    let place = Place::new();
    place.write("worker", format!("{MODEL}{}", block("python")));
    let line = "-j1 --warm --jsonl --batch 8 --batch-wait 10s -- python3 worker";
    let ran = place.run_typed(&format!("{line} ::: 1 4 9 -1 25 36 '\"nan\"' 64"));
    ran.check(2, "1.0\n2.0\n3.0\n5.0\n6.0\n8.0\n");
    ran.check_said(2, &["job 4 failed: ValueError", "job 7 failed: Out of range float values"]);
    ran.check_said(2, &["the list of job 1 and 7 more", "out of memory", "a greeting"]);
    place.run_typed("-j2 --warm --jsonl -- python3 worker ::: 1 4").check(0, "1.0\n2.0\n");
}

#[test]
fn the_worker_in_the_shell_takes_files() {
    let place = Place::new();
    place.write("worker", block("sh"));
    place.write("a", "abc");
    let ran = place.run_typed("-j1 --warm --batch 2 -- sh worker ::: a missing worker");
    assert!(ran.stdout.starts_with("3\n") && ran.stdout.lines().count() == 2, "{ran:?}");
    ran.check_said(1, &["job 2 failed: it cannot be read", "--batch has no effect"]);
}

#[test]
fn the_worker_in_c_takes_numbers() {
    let place = Place::new();
    place.write("worker.c", block("c"));
    let mut gcc = Command::new("gcc");
    gcc.args(["-Wall", "-Wextra", "-Werror", "-o", "worker", "worker.c", "-lm"]);
    assert!(gcc.current_dir(place.directory()).status().unwrap().success());
    let ran = place.run_typed("-j2 --warm --jsonl -- ./worker ::: 4 -1 6.25");
    ran.check(1, "2\n2.5\n");
    ran.check_said(1, &["job 2 failed: it is negative"]);
}

/// Stand-ins for what the page imports: the score of a class is the share of its letter in a file.
const TORCH: &str = r#"
import contextlib

class Tensor(list):
    def to(self, device):
        return self
    def tolist(self):
        return [list(row) for row in self]

no_grad = contextlib.nullcontext
stack = Tensor

def softmax(rows, dim):
    return Tensor([[x / sum(row) for x in row] for row in rows])

def load(path, map_location):
    return open(path).read()
"#;

const TORCHVISION: &str = r#"
class Weights:
    meta = {"categories": list("abcdefg")}
    def transforms(self):
        return lambda image: [image.count(label.encode()) for label in self.meta["categories"]]

class ResNet50_Weights:
    DEFAULT = Weights()

class Model:
    def load_state_dict(self, state):
        assert state == "weights"
    def eval(self):
        return self
    def to(self, device):
        assert device in ("cpu", "cuda:0"), device
        return self
    def __call__(self, images):
        assert len(images) <= 4, images
        return images

resnet50 = Model
"#;

const PILLOW: &str = r#"
class Image(bytes):
    def convert(self, mode):
        return self

def open(data):
    data = data.read()
    if not data:
        raise ValueError("cannot identify image file")
    return Image(data)
"#;

#[test]
fn the_port_of_chassis_is_asked_and_checked() {
    let place = Place::new();
    for folder in ["torchvision", "PIL", "data"] {
        fs::create_dir(place.path(folder)).unwrap();
    }
    place.write("torch.py", TORCH);
    place.write("torchvision/models.py", TORCHVISION);
    place.write("PIL/Image.py", PILLOW);
    place.write("resnet50.pt", "weights");
    place.write("data/airplane.jpg", "aaab");
    place.write("data/boat.jpg", "bbbbc");
    place.write("data/broken.jpg", "");
    place.write("predict.py", worker_of("from-chassis.md"));
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python");
    let modules = format!("{}:{}", place.directory().display(), python.display());
    let ran = |line: &str| place.ran(place.typed(line).env("PYTHONPATH", &modules));
    let test = ran("run --warm --gpu-list 0 -- python3 predict.py ::: data/airplane.jpg");
    assert_eq!(test.code, Some(0), "{test:?}");
    let first = r#"{"classPredictions":[{"class":"a","score":0.75},{"class":"b","score":0.25},"#;
    assert!(test.stdout.starts_with(first), "{test:?}");
    let request = r#"run --warm -j1 --jsonl -- python3 predict.py ::: '{"base64":"YWFhYg=="}'"#;
    assert_eq!(ran(request).stdout, test.stdout, "the bytes of a request are an image too");
    let files = "data/airplane.jpg data/boat.jpg data/broken.jpg";
    let line = format!("check --batch 4 --tolerance 0.002 -- python3 predict.py ::: {files}");
    let check = ran(&line);
    assert_eq!(check.code, Some(0), "{check:?}");
    assert!(!check.stdout.contains("unchecked"), "{}", check.stdout);
}
