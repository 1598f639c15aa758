//! The error of a run that is left without producers.

use std::sync::Arc;
use std::time::Duration;

use gangline::{Error, OrderedRunner};

use crate::support::{Counter, Gate, map, no_hang};

/// Longer than a busy machine keeps a hook from its end.
const SOON: Duration = Duration::from_millis(300);

/// A runner that is stuck at these items until the gate opens. Each hook that is stuck adds one to the counter,
/// and waits until that is its place in the list.
fn stuck_at(items: &'static [u64], gate: &Arc<Gate>) -> crate::support::Tasks<'static, u64, u64> {
    let (gate, begun) = (gate.clone(), Counter::new());
    map(
        |_| Ok(()),
        move |_, (), x: u64| {
            if items.contains(&x) {
                begun.add(1);
                gate.pass();
            }
            Ok(x)
        },
    )
}

#[test]
fn the_first_item_in_order_is_named_when_no_producer_is_left() {
    no_hang(|| {
        let gate = Arc::new(Gate::new());
        let builder = OrderedRunner::builder(stuck_at(&[3, 8, 11], &gate)).devices(3);
        let mut pool = builder.item_timeout(SOON).retries(2).build().unwrap();
        let error = pool.run(0..50).unwrap_err();
        assert!(matches!(error, Error::TooFewProducers { here: 0, .. }), "{error:#}");
        assert!(error.is_timeout(), "{error:#}");
        assert_eq!((error.item(), error.attempt()), (Some(3), Some(1)), "{error:#}");
        let account = pool.account();
        assert_eq!((account.ok, account.failed), (3, 1), "{account:?}");
        gate.open();
    });
}
