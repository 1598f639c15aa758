//! When a slow item is started a second time.

use std::time::Duration;

/// The minimum duration of an item that is worth a second copy. The clock of a model stands still.
const LEAST: Duration = Duration::from_millis(if cfg!(shuttle) { 0 } else { 10 });

/// The time after which another producer starts a second copy of an item. `mean` is the mean duration of
/// earlier items, if there are any.
pub(crate) fn copy_after(mean: Option<Duration>) -> Duration {
    // An item at twice the mean may well finish soon, and a copy takes about the mean.
    mean.map_or(LEAST, |mean| mean.saturating_mul(2)).max(LEAST)
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use super::*;

    #[test]
    fn an_item_has_twice_the_time_of_others() {
        let ms = Duration::from_millis;
        assert_eq!(copy_after(Some(ms(30))), ms(60));
        assert_eq!(copy_after(Some(ms(1))), LEAST);
        assert_eq!(copy_after(None), LEAST);
    }
}
