//! The grammar of device lists, read and written. [`Devices`](super::Devices) documents its meaning.
//!
//! ```text
//! list  = part { "," part }
//! part  = some { "|" some }
//! some  = place [ "*" number ]
//! place = term { "+" term }
//! term  = "cpu" | kind [ ":" ( number [ "-" number ] | "all" ) ]
//! kind  = "cuda" | "metal"
//! ```
//!
//! Texts come from files and command lines, so each size is checked before anything of that size is
//! allocated. Errors quote only the beginning of a text that is too long to show.

#[cfg(test)]
mod tests;

use std::fmt;
use std::iter;
use std::ops::RangeInclusive;
use std::str::FromStr;

use super::accelerator::Accelerator;
use super::detect::{Found, Memo, check_places};
use super::device_error::DeviceError;
use super::error_text::clip;
use super::id::Device;
use super::place::{MAX_DEVICES, MAX_PLACES, Place};

/// A text with more fallbacks than this was not written by hand. Only the first ones are reported.
const MAX_FALLBACKS: usize = 32;

/// The maximum number of alternatives, so that the list of reasons why none can be used stays readable.
const MAX_ALTERNATIVES: usize = 16;

type Result<T> = std::result::Result<T, DeviceError>;

/// The result of reading a text on this machine.
#[derive(Debug)]
pub(super) struct Parsed {
    pub(super) places: Vec<Place>,
    /// The fallbacks in use, each as a sentence, without repeats.
    pub(super) fallbacks: Vec<String>,
}

/// Reads exactly one device.
///
/// # Errors
///
/// [`DeviceError`] if the text is no device, or stands for several (`cuda:0-3`, `cpu*2`): those
/// are [`Devices`](super::Devices).
impl FromStr for Device {
    type Err = DeviceError;

    fn from_str(text: &str) -> Result<Self> {
        parse_device(text)
    }
}

/// Reads a list; `found` is called only if the text has `all` or `|`.
pub(super) fn parse_places(text: &str, found: &dyn Fn(Accelerator) -> Found) -> Result<Parsed> {
    if text.trim().is_empty() {
        return Err(DeviceError::Empty {});
    }
    let asked = Memo::default();
    let reader = TermReader { text, found: &|accelerator| asked.of(accelerator, found) };
    let (mut places, mut fallbacks) = (Vec::new(), Vec::new());
    for part in text.split(',') {
        let (each, count) = reader.part(part, &mut fallbacks)?;
        let least = each.len().saturating_mul(count).saturating_add(places.len());
        if least > MAX_PLACES {
            return Err(DeviceError::TooManyPlaces { least, most: MAX_PLACES });
        }
        places.extend(each.into_iter().flat_map(|place| iter::repeat_n(place, count)));
    }
    Ok(Parsed { places, fallbacks })
}

/// Reads one device.
pub(super) fn parse_device(text: &str) -> Result<Device> {
    let not_one = || DeviceError::NotOne { text: clip(text) };
    if text.trim().is_empty() || text.contains([',', '+', '*', '|']) {
        return Err(not_one());
    }
    let reader = TermReader { text, found: &|_| Found::NotBuilt };
    match reader.term(text)? {
        Term::One(device) => Ok(device),
        Term::Range(..) | Term::All(_) => Err(not_one()),
    }
}

/// Writes a list, with equal neighbours together.
pub(super) fn write_places(f: &mut fmt::Formatter<'_>, places: &[Place]) -> fmt::Result {
    for (n, run) in places.chunk_by(|a, b| a == b).enumerate() {
        let comma = if n == 0 { "" } else { "," };
        write!(f, "{comma}{}", run[0])?;
        if run.len() > 1 {
            write!(f, "*{}", run.len())?;
        }
    }
    Ok(())
}

/// The text between two signs.
enum Term {
    One(Device),
    Range(Accelerator, RangeInclusive<usize>),
    All(Accelerator),
}

/// The devices of a term, counted before they are allocated.
enum TermDevices {
    One(Device),
    Range(Accelerator, RangeInclusive<usize>),
}

impl TermDevices {
    fn len(&self) -> usize {
        match self {
            TermDevices::One(_) => 1,
            TermDevices::Range(_, indices) => (indices.end() - indices.start()).saturating_add(1),
        }
    }

    fn devices(self) -> Vec<Device> {
        match self {
            TermDevices::One(device) => vec![device],
            TermDevices::Range(accelerator, indices) => {
                indices.map(|index| accelerator.device(index)).collect()
            }
        }
    }
}

struct TermReader<'a> {
    /// The whole text, for errors.
    text: &'a str,
    found: &'a dyn Fn(Accelerator) -> Found,
}

impl TermReader<'_> {
    /// Returns the places of a part, and how often to take each: those of the first usable alternative.
    fn part(&self, part: &str, fallbacks: &mut Vec<String>) -> Result<(Vec<Place>, usize)> {
        if !part.contains('|') {
            return self.some(part);
        }
        let alternatives: Vec<_> = part.split('|').take(MAX_ALTERNATIVES + 1).collect();
        if alternatives.len() > MAX_ALTERNATIVES {
            let most = MAX_ALTERNATIVES;
            return Err(DeviceError::TooManyAlternatives { text: clip(part.trim()), most });
        }
        // A mistake is an error in each alternative, and on each machine.
        let reader = TermReader { found: &|_| Found::Count(1), ..*self };
        alternatives.iter().try_for_each(|text| reader.some(text).map(drop))?;
        let mut missing = Vec::new();
        for text in alternatives {
            match self.usable(text) {
                Ok(some) if missing.is_empty() => return Ok(some),
                Ok(some) => {
                    note_once(fallbacks, fallback(part, text, &missing));
                    return Ok(some);
                }
                Err(error) if error.is_absence() => missing.push(reason(error)),
                Err(error) => return Err(error),
            }
        }
        Err(DeviceError::NothingLeft { text: clip(part.trim()), reasons: missing.join("; ") })
    }

    /// Returns the places of an alternative, if they can be used.
    fn usable(&self, text: &str) -> Result<(Vec<Place>, usize)> {
        let (places, count) = self.some(text)?;
        check_places(&places, self.found)?;
        Ok((places, count))
    }

    fn some(&self, part: &str) -> Result<(Vec<Place>, usize)> {
        let (places, count) = match part.split_once('*') {
            None => (self.places(part)?, 1),
            Some((places, count)) => (self.places(places)?, self.count(part, count)?),
        };
        match places.len().saturating_mul(count) {
            0..=MAX_PLACES => Ok((places, count)),
            least => Err(DeviceError::TooManyPlaces { least, most: MAX_PLACES }),
        }
    }

    fn places(&self, text: &str) -> Result<Vec<Place>> {
        if text.contains('+') {
            return Ok(vec![self.joined(text)?]);
        }
        let span = self.span(text)?;
        match span.len() {
            0..=MAX_PLACES => Ok(span.devices().into_iter().map(Place::one).collect()),
            least => Err(DeviceError::TooManyPlaces { least, most: MAX_PLACES }),
        }
    }

    /// Returns all devices of all terms, in one place.
    fn joined(&self, text: &str) -> Result<Place> {
        let mut devices = Vec::new();
        for term in text.split('+') {
            let span = self.span(term)?;
            let least = span.len().saturating_add(devices.len());
            if least > MAX_DEVICES {
                return Err(DeviceError::TooManyInPlace { least, most: MAX_DEVICES });
            }
            devices.extend(span.devices());
        }
        Place::new(devices)
    }

    fn span(&self, text: &str) -> Result<TermDevices> {
        match self.term(text)? {
            Term::One(device) => Ok(TermDevices::One(device)),
            Term::Range(accelerator, indices) => Ok(TermDevices::Range(accelerator, indices)),
            Term::All(accelerator) => {
                let count = (self.found)(accelerator).all(accelerator)?;
                Ok(TermDevices::Range(accelerator, 0..=count.get() - 1))
            }
        }
    }

    fn term(&self, text: &str) -> Result<Term> {
        let text = text.trim();
        let (name, index) = match text.split_once(':') {
            Some((name, index)) => (name.trim_end(), Some(index.trim_start())),
            None => (text, None),
        };
        match (name, index) {
            ("", None) => Err(DeviceError::EmptyPart { text: clip(self.text) }),
            ("cpu", None) => Ok(Term::One(Device::Cpu)),
            ("cpu", Some(_)) => Err(DeviceError::CpuIndex { text: clip(text) }),
            _ => match Accelerator::named(name) {
                Some(accelerator) => accelerator_term(accelerator, text, index.unwrap_or("0")),
                None => Err(self.unknown(text)),
            },
        }
    }

    fn count(&self, part: &str, count: &str) -> Result<usize> {
        match number(count) {
            // A number too large for the type is too large for the list, and the list reports it.
            TermNumber::Some(0) | TermNumber::None => {
                Err(DeviceError::BadCount { text: clip(part), most: MAX_PLACES })
            }
            TermNumber::Some(count) => Ok(count),
            TermNumber::TooLarge => Ok(usize::MAX),
        }
    }

    fn unknown(&self, text: &str) -> DeviceError {
        if is_bare_index(text) {
            DeviceError::NoKind { text: clip(text), instead: self.with_kinds() }
        } else {
            DeviceError::Unknown { text: clip(text), instead: meant(text) }
        }
    }

    /// Returns the text that a list of bare numbers probably meant.
    fn with_kinds(&self) -> String {
        if let TermNumber::Some(count @ 1..=MAX_PLACES) = number(self.text) {
            return format!("cpu*{count} or cuda:{count}");
        }
        let mut kind = Accelerator::Cuda;
        let terms = self.text.split_inclusive([',', '+', '|']).map(|term| {
            let term = term.trim_start();
            if term.starts_with(|c: char| c.is_ascii_digit()) {
                return format!("{kind}:{term}");
            }
            let named = |accelerator: &Accelerator| term.starts_with(accelerator.name());
            kind = Accelerator::ALL.into_iter().find(named).unwrap_or(kind);
            term.to_owned()
        });
        // It is shown without quotes, so control characters must not reach a terminal.
        clip(&terms.collect::<String>().escape_debug().to_string())
    }
}

/// What the names of other libraries stand for here.
fn meant(text: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    let (name, index) = lower.split_once(':').unwrap_or((&lower, ""));
    let index = if matches!(number(index), TermNumber::Some(_)) { index.trim() } else { "0" };
    match name {
        "auto" | "all" | "any" | "gpus" => {
            Some("cuda:all, or cuda:all|cpu to allow the CPU".to_owned())
        }
        "gpu" => Some(format!("cuda:{index} or metal:{index}")),
        "mps" => Some(format!("metal:{index}")),
        // It is shown without quotes, so control characters must not reach a terminal.
        "cpu" | "cuda" | "metal" => Some(clip(&lower.escape_debug().to_string())),
        _ => None,
    }
}

/// Describes which alternative is used, and why the preferred ones are not.
fn fallback(part: &str, used: &str, missing: &[String]) -> String {
    let used = used.split_whitespace().collect::<String>();
    format!("{:?} came to {}, since {}", clip(part.trim()), clip(&used), missing.join("; "))
}

fn reason(missing: DeviceError) -> String {
    match missing {
        // The error's own text also gives advice that does not apply to a fallback.
        DeviceError::NotBuilt { wanted, feature } => {
            format!("{wanted} needs a build with the feature `{feature}`")
        }
        missing => format!("{missing:?}"),
    }
}

pub(super) fn note_once(fallbacks: &mut Vec<String>, fallback: String) {
    if fallbacks.len() < MAX_FALLBACKS && !fallbacks.contains(&fallback) {
        fallbacks.push(fallback);
    }
}

fn accelerator_term(accelerator: Accelerator, text: &str, index: &str) -> Result<Term> {
    let kind = accelerator.name();
    let read = |index| match number(index) {
        TermNumber::Some(index) => Ok(index),
        _ => Err(DeviceError::BadIndex { text: clip(text), kind }),
    };
    if index == "all" {
        return Ok(Term::All(accelerator));
    }
    let Some((first, last)) = index.split_once('-') else {
        return Ok(Term::One(accelerator.device(read(index)?)));
    };
    match (read(first)?, read(last)?) {
        (first, last) if first <= last => Ok(Term::Range(accelerator, first..=last)),
        (first, last) => Err(DeviceError::Backwards { text: clip(text), kind, first, last }),
    }
}

pub(super) enum TermNumber {
    Some(usize),
    TooLarge,
    None,
}

/// Reads digits only: `str::parse` takes a `+` as well, which is a sign of the grammar.
pub(super) fn number(text: &str) -> TermNumber {
    let text = text.trim();
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return TermNumber::None;
    }
    text.parse().map_or(TermNumber::TooLarge, TermNumber::Some)
}

fn is_bare_index(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_digit() || c == '-' || c.is_whitespace())
}
