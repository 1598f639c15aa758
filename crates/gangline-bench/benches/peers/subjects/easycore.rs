//! The parallel runner of easycore, in a Python process that times itself.

use std::process::{Command, Stdio};
use std::time::Duration;

use gangline::BoxError;

use crate::subject::{Kind, Outcome, Subject};
use crate::work::Work;

const SCRIPT: &str = include_str!("easycore.py");
const PYTHON: &str = "python3";

pub struct Easycore {
    pub threads: usize,
}

impl Easycore {
    pub fn is_installed() -> bool {
        let mut import = Command::new(PYTHON);
        import.args(["-c", "import easycore.common.parallel"]);
        let status = import.stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    }

    fn ask(&self, items: u64, work: Work) -> Result<Outcome, BoxError> {
        let (factor, addend) = work.as_one_step();
        let seconds = work.time().as_secs_f64();
        let mut python = Command::new(PYTHON);
        python.args(["-c", SCRIPT, &items.to_string(), &self.threads.to_string()]);
        python.args([&seconds.to_string(), &factor.to_string(), &addend.to_string()]);
        let output = python.stderr(Stdio::inherit()).output()?;
        if !output.status.success() {
            return Err(format!("{PYTHON}: {}", output.status).into());
        }
        answer(&String::from_utf8(output.stdout)?)
    }
}

impl Subject for Easycore {
    fn kind(&self) -> Kind {
        Kind::Easycore
    }

    /// It handles some 30,000 items a second; its time per item does not depend on their number.
    fn capacity(&self, items: u64) -> u64 {
        items.min(5_000)
    }

    fn run(&mut self, items: u64, work: Work) -> Outcome {
        self.ask(items, work).expect("easycore was there when the run began")
    }
}

fn answer(text: &str) -> Result<Outcome, BoxError> {
    let (sum, seconds) = text.trim().split_once(' ').ok_or("the script printed no sum and time")?;
    Ok(Outcome { sum: sum.parse()?, elapsed: Duration::from_secs_f64(seconds.parse()?) })
}
