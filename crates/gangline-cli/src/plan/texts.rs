//! Texts with marks beside the command, which are filled for each job.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::Arc;

use crate::args::RunArgs;
use crate::error::{CliError, Context, usage};
use crate::exit;
use crate::plan::job::Job;
use crate::plan::mark::{InputMarks, Marks};
use crate::plan::template::Template;

/// The texts of one lane.
#[derive(Debug, Clone, Default)]
pub(crate) struct Texts {
    pub(crate) tag: Tag,
    /// Where the results of a job go, if that has marks.
    pub(crate) results: Option<Arc<Template>>,
    pub(crate) workdir: Option<Arc<Template>>,
    /// The files that are copied to each job, and back.
    #[cfg_attr(not(feature = "nats"), expect(dead_code, reason = "such a run is refused"))]
    pub(crate) files: SentFiles,
}

/// The names of files that travel with a job.
#[derive(Debug, Clone, Default)]
#[cfg_attr(not(feature = "nats"), expect(dead_code, reason = "such a run is refused"))]
pub(crate) struct SentFiles {
    pub(crate) send: Vec<Arc<Template>>,
    pub(crate) fetch: Vec<Arc<Template>>,
}

/// What precedes each line of a job's output.
#[derive(Debug, Clone, Default)]
pub(crate) enum Tag {
    #[default]
    None,
    /// The inputs.
    Input,
    Text(Arc<Template>),
}

/// What a slot adds to the texts of a job.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OnSlot<'a> {
    pub(crate) gpus: &'a [String],
    pub(crate) worker: usize,
    pub(crate) attempt: u32,
}

impl Texts {
    /// Parses the texts with the marks of the command. An input of a job can be shown wherever it goes.
    pub(crate) fn new(args: &RunArgs, marks: &Marks<'_>) -> Result<Texts, CliError> {
        let input = match marks.input {
            InputMarks::Sent | InputMarks::Parameters => InputMarks::Words,
            input => input,
        };
        let marks = &Marks { input, ..*marks };
        let logs = args.record.joblog.iter().chain(&args.record.journal).chain(&args.record.report);
        logs.into_iter().try_for_each(|path| check_is_one_file(path, marks))?;
        let tag = match (&args.printing.tagstring, args.printing.tag) {
            (Some(text), _) => Tag::Text(template("--tagstring", text, marks)?),
            (None, true) => Tag::Input,
            (None, false) => Tag::None,
        };
        let results =
            args.output.results.as_ref().map(|path| template("--results", path.as_os_str(), marks));
        let results = results.transpose()?.filter(|results| results.has_marks());
        if args.cluster.nats.is_some() && results.as_ref().is_some_and(|it| it.differs_by_slot()) {
            return Err(usage(
                "with --nats, --results cannot have {gpu}, {%}, {worker} or {host}: the name is needed before a worker \
                 takes the job",
            ));
        }
        let workdir = args.running.workdir.as_ref();
        if workdir.is_some_and(|workdir| workdir == "...") {
            return Err(usage(
                "with GNU parallel ... is a temporary directory for each job; name one, as in --workdir tmp/{#}",
            ));
        }
        let workdir = workdir.map(|text| template("--workdir", text, marks));
        let files = SentFiles {
            send: files("--send", &args.cluster.send, marks)?,
            fetch: files("--fetch", &args.cluster.fetch, marks)?,
        };
        Ok(Texts { tag, results, workdir: workdir.transpose()?, files })
    }

    pub(crate) fn tag(&self, job: &Job, slot: OnSlot<'_>) -> Option<Vec<u8>> {
        match &self.tag {
            Tag::None => None,
            Tag::Input => {
                let fields: Vec<&[u8]> = job.fields.iter().map(|field| field.as_bytes()).collect();
                Some(fields.join(&b' '))
            }
            Tag::Text(text) => Some(fill(text, job, slot).into_vec()),
        }
    }
}

/// Fills a text for one job. A mark that stands for several words has spaces between them.
pub(crate) fn fill(text: &Arc<Template>, job: &Job, slot: OnSlot<'_>) -> OsString {
    let job = Job { command: Arc::clone(text), ..job.clone() };
    let words = job.words(slot.gpus, slot.worker, slot.attempt).arguments;
    words.join(OsStr::new(" "))
}

/// Parses names of files, which are the same on both machines.
fn files(
    option: &str,
    names: &[OsString],
    marks: &Marks<'_>,
) -> Result<Vec<Arc<Template>>, CliError> {
    let parsed = names.iter().map(|name| match template(option, name, marks) {
        Ok(name) if name.differs_by_slot() => Err(usage(&format!(
            "{option} cannot have {{gpu}}, {{%}}, {{worker}} or {{host}}: the name is needed before a worker takes the job",
        ))),
        parsed => parsed,
    });
    parsed.collect()
}

/// Parses a text as the one argument of a command.
fn template(option: &str, text: &OsStr, marks: &Marks<'_>) -> Result<Arc<Template>, CliError> {
    let words = [OsString::from("text"), text.to_owned()];
    let template = Template::without_input(&words, marks).map_err(|error| {
        CliError::new(
            exit::USAGE,
            Context::new(format!("{option} is not a text with marks"), error),
        )
    })?;
    match template.has_total() {
        false => Ok(Arc::new(template)),
        true => Err(CliError::new(
            exit::USAGE,
            format!(
                "{option} cannot have the mark {{##}}, since the number of jobs may not be known yet"
            ),
        )),
    }
}

fn check_is_one_file(path: &Path, marks: &Marks<'_>) -> Result<(), CliError> {
    if path == Path::new("-") {
        return Err(usage("- is no file for a log, a journal or a report; /dev/stderr is one"));
    }
    // What is no mark is a part of the name.
    let has_marks = template("", path.as_os_str(), marks).map_or(true, |text| text.has_marks());
    match has_marks {
        false => Ok(()),
        true => Err(CliError::new(
            exit::USAGE,
            format!(
                "{} has a mark, and is one file for all jobs; --results with marks writes files for each job",
                path.display()
            ),
        )),
    }
}
