//! Why a mark cannot be substituted.

use std::fmt;

/// A mark that cannot be substituted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unknown {
    pub(crate) mark: String,
    pub(crate) why: Why,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Why {
    NoSuchMark,
    /// A number of GNU parallel with leading zeros.
    Padded,
    /// A computation of GNU parallel.
    Expression,
    /// `${1}`, which the shell and a mark would both replace.
    ShellParameter,
    NoGpus,
    NoColumn(Vec<String>),
    /// The number of inputs of a job, if it is known.
    NoInput(Option<usize>),
    CommandIsTheInput,
    InputIsUnused,
    SentToWorker,
    ScriptHasParameters,
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Unknown { mark, why } = self;
        match why {
            Why::NoSuchMark => write!(
                f,
                "there is no mark {mark}; the marks are {{}} {{.}} {{/}} {{//}} {{/.}} {{..}} {{+.}} {{1}} {{#}} \
                 {{##}} {{%}} {{gpu}} %(GPU)s {{worker}} {{host}} {{attempt}}"
            )?,
            Why::Padded => write!(
                f,
                "{mark} of GNU parallel is not supported: use {{#}} or {{%}}, and --shell with \
                 printf %03d to add zeros"
            )?,
            Why::Expression => write!(
                f,
                "{mark} is computed with --plus only, and {{= .. =}} never: compute it in a script, where the \
                 input is \"$1\", as in --shell 'echo \"${{1%.gz}}\"'"
            )?,
            Why::ShellParameter => write!(
                f,
                "{mark} is a parameter of the shell, and also has a mark in it: use --shell for a script"
            )?,
            Why::NoGpus => write!(
                f,
                "{mark} stands for the GPUs of a slot, and some slots have none: give --gpu-list or --devices, \
                 and not --use-gpu=false"
            )?,
            Why::NoColumn(columns) => {
                write!(f, "there is no column for {mark}; the columns are {}", columns.join(" "))?;
            }
            Why::NoInput(most) => no_input(f, mark, *most)?,
            Why::CommandIsTheInput => write!(
                f,
                "{mark} stands for an input, and in a job file each line is a whole command"
            )?,
            Why::InputIsUnused => {
                write!(f, "{mark} stands for an input, and -n 0 puts none into the command")?;
            }
            Why::SentToWorker => write!(
                f,
                "{mark} differs from job to job, and with --warm a command is started once for all jobs: it reads \
                 the inputs from its standard input"
            )?,
            Why::ScriptHasParameters => write!(
                f,
                "{mark} is not replaced in a script, which could run the input as code; the script has the input as \
                 \"$1\", and several inputs as \"$1\", \"$2\" and so on"
            )?,
        }
        match self.is_escapable() {
            true => write!(f, "; to pass the text itself, write {}", doubled(mark)),
            false => Ok(()),
        }
    }
}

impl Unknown {
    /// Whether the mark is whole, so that it can stand for its own text.
    fn is_escapable(&self) -> bool {
        self.mark.ends_with('}') || self.mark.starts_with('%')
    }
}

fn no_input(f: &mut fmt::Formatter<'_>, mark: &str, most: Option<usize>) -> fmt::Result {
    write!(f, "there is no input {mark}: ")?;
    match most {
        None => f.write_str("inputs count from {1}"),
        Some(1) => f.write_str("each job has one, which is {} or {1}"),
        Some(most) => write!(f, "each job has {most}, from {{1}} to {{{most}}}"),
    }
}

/// Escapes a mark, so that it stands for its own text.
fn doubled(mark: &str) -> String {
    match (mark.strip_prefix('%'), mark.strip_prefix('$')) {
        (Some(rest), _) => format!("%%{rest}"),
        (_, Some(rest)) => format!("${{{rest}}}"),
        _ => format!("{{{mark}}}"),
    }
}

impl std::error::Error for Unknown {}
