//! Combinations of several sources of inputs. All are read only as far as they are needed.

use std::ffi::OsString;
use std::iter;

use crate::plan::input_error::InputError;

/// The inputs that one reading of the sources gives.
pub(crate) type Row = Vec<OsString>;

/// Rows in their order, until the first error.
pub(crate) type Rows = Box<dyn Iterator<Item = Result<Row, InputError>> + Send>;

/// Each row of `outer` with each of `inner`, which stays in memory.
pub(crate) fn product(outer: Rows, inner: Rows) -> Rows {
    Box::new(Product { outer, inner: Kept::new(inner), current: None, at: 0 })
}

/// The first rows together, then the second, until the shortest source ends.
pub(crate) fn in_step(sources: Vec<Rows>) -> Rows {
    Box::new(InStep(sources))
}

/// The first rows together, then the second, until the longest source ends; shorter ones begin again. All stay
/// in memory.
pub(crate) fn recycled(sources: Vec<Rows>) -> Rows {
    let sources = sources.into_iter().map(Kept::new).collect();
    Box::new(Recycled { sources, at: 0 })
}

/// All rows, in random order. They are read when the first one is wanted.
pub(crate) fn shuffled(rows: Rows) -> Rows {
    let hint = rows.size_hint();
    let all = iter::once_with(move || match rows.collect::<Result<Vec<Row>, InputError>>() {
        Ok(mut rows) => {
            fastrand::shuffle(&mut rows);
            Box::new(rows.into_iter().map(Ok)) as Rows
        }
        Err(error) => Box::new(iter::once(Err(error))),
    });
    Box::new(Counted::new(all.flatten(), hint))
}

/// An iterator with a known length, which its parts hide.
pub(crate) struct Counted<I> {
    items: I,
    hint: (usize, Option<usize>),
}

impl<I> Counted<I> {
    pub(crate) fn new(items: I, hint: (usize, Option<usize>)) -> Counted<I> {
        Counted { items, hint }
    }
}

impl<I: Iterator> Iterator for Counted<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        let (least, most) = self.hint;
        self.hint = (least.saturating_sub(1), most.map(|most| most.saturating_sub(1)));
        self.items.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.hint
    }
}

/// Rows that are read more than once.
struct Kept {
    rows: Rows,
    read: Vec<Row>,
    has_ended: bool,
}

impl Kept {
    fn new(rows: Rows) -> Kept {
        Kept { rows, read: Vec::new(), has_ended: false }
    }

    /// The row at that index, which is at most the number of rows that were read.
    fn get(&mut self, at: usize) -> Result<Option<&Row>, InputError> {
        if at >= self.read.len() && !self.has_ended {
            match self.rows.next().transpose()? {
                Some(row) => self.read.push(row),
                None => self.has_ended = true,
            }
        }
        Ok(self.read.get(at))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let rest = if self.has_ended { (0, Some(0)) } else { self.rows.size_hint() };
        let add = |rest: usize| rest.saturating_add(self.read.len());
        (add(rest.0), rest.1.map(add))
    }
}

struct Product {
    outer: Rows,
    inner: Kept,
    current: Option<Row>,
    /// The index of the next row of `inner`.
    at: usize,
}

impl Product {
    fn read(&mut self) -> Result<Option<Row>, InputError> {
        loop {
            let Some(current) = &self.current else {
                // Without rows here, the other source may be endless.
                if self.inner.has_ended && self.inner.read.is_empty() {
                    return Ok(None);
                }
                self.current = self.outer.next().transpose()?;
                self.at = 0;
                if self.current.is_none() {
                    return Ok(None);
                }
                continue;
            };
            if let Some(row) = self.inner.get(self.at)? {
                self.at += 1;
                return Ok(Some([&current[..], row].concat()));
            }
            self.current = None;
        }
    }
}

impl Iterator for Product {
    type Item = Result<Row, InputError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let (outer, inner) = (self.outer.size_hint(), self.inner.size_hint());
        let left = |inner: usize| self.current.as_ref().map_or(0, |_| inner - self.at.min(inner));
        let least = outer.0.saturating_mul(inner.0).saturating_add(left(inner.0));
        let most = inner.1.and_then(|inner| outer.1?.checked_mul(inner)?.checked_add(left(inner)));
        (least, most)
    }
}

struct InStep(Vec<Rows>);

impl Iterator for InStep {
    type Item = Result<Row, InputError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rows: Option<Result<Vec<Row>, InputError>> =
            self.0.iter_mut().map(Rows::next).collect();
        rows.map(|rows| rows.map(|rows| rows.concat()))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let hints = self.0.iter().map(Rows::size_hint);
        let (least, most): (Vec<usize>, Vec<Option<usize>>) = hints.unzip();
        (least.into_iter().min().unwrap_or(0), most.into_iter().flatten().min())
    }
}

struct Recycled {
    sources: Vec<Kept>,
    at: usize,
}

impl Recycled {
    fn read(&mut self) -> Result<Option<Row>, InputError> {
        let at = self.at;
        let mut all = Row::new();
        let mut is_new = false;
        for source in &mut self.sources {
            if source.get(at)?.is_some() {
                is_new = true;
            }
            match source
                .read
                .get(at)
                .or_else(|| source.read.get(at.checked_rem(source.read.len())?))
            {
                Some(row) => all.extend_from_slice(row),
                None => return Ok(None),
            }
        }
        self.at += 1;
        Ok(is_new.then_some(all))
    }
}

impl Iterator for Recycled {
    type Item = Result<Row, InputError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let hints: Vec<_> = self.sources.iter().map(Kept::size_hint).collect();
        if hints.iter().any(|(_, most)| *most == Some(0)) {
            return (0, Some(0));
        }
        let least = hints.iter().map(|(least, _)| *least).max().unwrap_or(0);
        let most: Option<Vec<usize>> = hints.iter().map(|(_, most)| *most).collect();
        let most = most.and_then(|most| most.into_iter().max());
        let is_sure = hints.iter().all(|(least, _)| *least > 0);
        let left = |rows: usize| rows.saturating_sub(self.at);
        (if is_sure { left(least) } else { 0 }, most.map(left))
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    fn rows(texts: &str) -> Rows {
        let rows: Vec<Row> = texts.split_terminator(' ').map(|text| vec![text.into()]).collect();
        Box::new(rows.into_iter().map(Ok))
    }

    /// Rows without an end, of which at most 10 may be read.
    fn endless() -> Rows {
        let numbers = (0..).inspect(|number| assert!(*number < 10, "it is read too far"));
        Box::new(numbers.map(|number: usize| Ok(vec![number.to_string().into()])))
    }

    /// Checks all rows, and that each step knows how many are left.
    #[track_caller]
    fn check(mut rows: Rows, expected: &str) {
        let expected: Vec<&str> = expected.split_terminator(' ').collect();
        for (at, expected_row) in expected.iter().enumerate() {
            let left = expected.len() - at;
            assert_eq!(rows.size_hint(), (left, Some(left)), "before row {at}");
            let row = rows.next().unwrap().unwrap();
            assert_eq!(row.join(OsStr::new("")), OsString::from(expected_row));
        }
        assert!(rows.next().is_none());
    }

    #[test]
    fn each_goes_with_each() {
        check(product(rows("a b"), rows("1 2 3")), "a1 a2 a3 b1 b2 b3");
        check(product(product(rows("a b"), rows("1 2")), rows("x")), "a1x a2x b1x b2x");
        check(product(rows(""), rows("1")), "");
    }

    #[test]
    fn an_endless_source_is_read_as_far_as_needed() {
        let first: Vec<Row> = product(endless(), rows("a b")).take(3).map(Result::unwrap).collect();
        assert_eq!(first.concat(), ["0", "a", "0", "b", "1", "a"]);
        assert_eq!(product(rows("a b"), endless()).take(3).count(), 3);
        assert_eq!(product(endless(), rows("")).count(), 0);
        assert_eq!(in_step(vec![endless(), rows("a b")]).count(), 2);
        assert_eq!(recycled(vec![endless(), rows("")]).count(), 0);
    }

    #[test]
    fn sources_go_in_step() {
        check(in_step(vec![rows("a b c"), rows("1 2")]), "a1 b2");
        check(recycled(vec![rows("a b c"), rows("1 2"), rows("x")]), "a1x b2x c1x");
        check(recycled(vec![rows("a"), rows("1 2 3 4")]), "a1 a2 a3 a4");
    }

    #[test]
    fn a_shuffle_loses_nothing() {
        let texts: Vec<OsString> =
            (100..200).map(|number: u32| number.to_string().into()).collect();
        let given = texts.clone().into_iter().map(|text| Ok(vec![text]));
        let shuffled = shuffled(Box::new(given));
        assert_eq!(shuffled.size_hint(), (100, Some(100)));
        let found: Vec<Row> = shuffled.map(Result::unwrap).collect();
        let mut found: Vec<OsString> = found.concat();
        assert_ne!(found, texts, "the order is another");
        found.sort();
        assert_eq!(found, texts);
    }
}
