//! Runs subjects against each other.

use crate::subject::Subject;
use crate::work::Work;

/// The least nanoseconds for an item of each subject. They take turns, so that whatever else the machine
/// does hits all alike.
pub fn nanoseconds_per_item(
    subjects: &mut [Box<dyn Subject>],
    items: u64,
    work: Work,
    rounds: usize,
) -> Vec<f64> {
    let mut least = vec![f64::INFINITY; subjects.len()];
    for _ in 0..rounds {
        for (subject, least) in subjects.iter_mut().zip(&mut least) {
            *least = least.min(once(subject.as_mut(), items, work));
        }
    }
    least
}

fn once(subject: &mut dyn Subject, items: u64, work: Work) -> f64 {
    let items = subject.capacity(items);
    let outcome = subject.run(items, work);
    assert_eq!(outcome.sum, work.sum(items), "the sum of {}", subject.kind().name());
    outcome.elapsed.as_secs_f64() * 1e9 / items as f64
}
