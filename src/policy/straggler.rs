//! When a slow item is started a second time.

use std::time::Duration;

/// So much shorter is no item worth a second start. The clock of a model stands still.
const LEAST: Duration = Duration::from_millis(if cfg!(shuttle) { 0 } else { 10 });

/// How long an item is worked on before another producer starts it too, where others took `mean` each:
/// `None` where there were none.
pub(crate) fn copy_after(mean: Option<Duration>) -> Duration {
    // What takes twice as long as others may well be done next; a copy takes as long as those do.
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
