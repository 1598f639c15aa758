//! Clusters of up to 1,000 workers: their laws, and the messages that they cost.

use std::time::Duration;

use super::hooks::{HookAccount, HookSettings};
use super::jetstream::Files;
use super::world::{Happening, World};
use super::{Plan, simulate, simulate_with, small_plan};

#[test]
fn a_thousand_workers_keep_the_laws() {
    let second = Duration::from_secs(1);
    let mut plan = Plan {
        workers: vec![1; 1_000],
        seats: 1_000,
        window: 3_000,
        lease: second * 5,
        hooks: HookSettings { most: second * 2, ..small_plan(0).hooks },
        ..small_plan(3_000)
    };
    for worker in (1..=1_000).step_by(50) {
        plan.happenings.extend([
            (second * 2, Happening::Kill(worker)),
            (second * 3, Happening::Replace(worker)),
            (second * 2, Happening::Cut(worker + 1, second * 8)),
            (second, Happening::Stop(worker + 2, second * 7)),
        ]);
    }
    plan.happenings.push((second * 4, Happening::KillBroker(Files::Kept, second)));
    simulate(&plan, 1, None).unwrap();
}

/// The sum of docs/cluster.md for workers of one producer, whose messages form no groups.
#[test]
fn messages_are_as_many_as_the_page_says() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/cluster.md");
    let page = std::fs::read_to_string(page).unwrap();
    let sum = "11 *n* + (2.2 *s* + 25) *w* + 0.4 *h* + 1.5 *s* + 40";
    assert!(page.contains(sum), "the page has another sum");
    for (workers, items) in [(10_u32, 200), (100, 2_000), (1_000, 4_000)] {
        let plan = Plan {
            workers: vec![1; workers as usize],
            seats: workers as usize,
            window: 3 * workers as usize,
            lease: Duration::from_secs(10),
            hooks: HookSettings { most: Duration::from_secs(2), ..small_plan(0).hooks },
            ..small_plan(items)
        };
        let look = |world: &mut World<'_>, account: &HookAccount| {
            Ok((world.broker.messages() as f64, world.now.as_secs_f64(), account.time))
        };
        let (messages, seconds, in_hooks) = simulate_with(&plan, 1, None, look).unwrap();
        let of_workers = f64::from(workers) * (2.2 * seconds + 25.0);
        let of_items = 11.0 * items as f64 + 0.4 * in_hooks.as_secs_f64();
        let most = of_workers + of_items + 1.5 * seconds + 40.0;
        // The sum is no lower bound: some messages carry the news of several items.
        let is_near = (0.8 * most..=most).contains(&messages);
        assert!(is_near, "{workers} workers: {messages} messages, and {most} on the page");
    }
}
