//! The scripts that are drawn, and what must hold for each.

use super::*;

fn faults() -> impl Strategy<Value = Fault> {
    prop_oneof![
        10 => Just(Fault::None),
        3 => (1..4_u32).prop_map(Fault::Fails),
        1 => (1..4_u32).prop_map(Fault::Panics),
        2 => (1..100_u32).prop_map(Fault::Slow),
        1 => Just(Fault::Stuck),
    ]
}

fn flaws() -> impl Strategy<Value = Flaw> {
    prop_oneof![
        6 => Just(Flaw::None),
        1 => Just(Flaw::Broken),
        1 => (1..5_usize).prop_map(Flaw::Memory),
        1 => Just(Flaw::NoSecondInit),
    ]
}

fn batches() -> impl Strategy<Value = Batch> {
    (1..6_usize, 0..6).prop_map(|(most, kind)| match kind {
        0 => Batch::of(most),
        1 => Batch::up_to(most),
        2 => Batch::of(most).within(2 * MS),
        3 => Batch::auto(),
        4 => Batch::auto().within(2 * MS),
        _ => Batch::up_to(most).latency(5 * MS),
    })
}

prop_compose! {
    fn scripts()(
        items in proptest::collection::vec(faults(), 0..50),
        flaws in proptest::collection::vec(flaws(), 1..5),
        order in prop_oneof![Just(Order::Input), Just(Order::Completion)],
        window in 6..30_usize,
        batch in proptest::option::of(batches()),
        retries in 0..3_u32,
        quarantine_after in proptest::option::of(1..4_usize),
        speculates in any::<bool>(),
        item_timeout in proptest::option::of((30..60_u32).prop_map(|ms| ms * MS)),
        on_error in prop_oneof![2 => Just(OnError::Skip), 1 => Just(OnError::Stop)],
        keeps_inputs in any::<bool>(),
        keeps_items in proptest::bool::weighted(0.3),
        background_in in 0..4_u64,
        seed in any::<u64>(),
    ) -> Script {
        Script {
            items, flaws, order, window, batch, retries, quarantine_after, speculates,
            item_timeout, on_error, keeps_inputs, keeps_items, background_in, seed,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]

    /// In every script, nothing waits for ever, each item has one outcome, and only retries count as
    /// attempts.
    #[test]
    fn every_item_has_one_verdict(script in scripts()) {
        let simulation = Simulation::new(script.clone()).play();
        let first_failed =
            simulation.verdicts.iter().find(|(_, verdict)| **verdict == End::Failed);
        let was_cut_short = simulation.scheduler.health().live() == 0
            || script.flaws.contains(&Flaw::NoSecondInit);
        match first_failed {
            None if !was_cut_short => {
                prop_assert_eq!(simulation.verdicts.len(), script.items.len());
            }
            Some((&first, _)) if !was_cut_short && script.order == Order::Input => {
                let before = simulation.verdicts.range(..first);
                prop_assert_eq!(before.count() as u64, first, "those before it have their ends");
                prop_assert_eq!(script.on_error, OnError::Stop);
            }
            _ => {}
        }
        prop_assert!(script.on_error == OnError::Stop || first_failed.is_none());
    }

    /// Batches that run out of memory are split, and no item is blamed.
    #[test]
    fn out_of_memory_costs_no_item(
        script in scripts(),
        memory in proptest::collection::vec(1..6_usize, 1..4),
    ) {
        let items = vec![Fault::None; script.items.len()];
        let flaws = memory.into_iter().map(Flaw::Memory).collect();
        let script = Script { items, flaws, item_timeout: None, ..script };
        let simulation = Simulation::new(script.clone()).play();
        prop_assert_eq!(simulation.succeeded.len(), script.items.len());
        prop_assert!(simulation.quarantined.is_empty());
    }

    /// Good items succeed despite broken producers, as long as there are good producers.
    #[test]
    fn a_broken_producer_costs_no_item(script in scripts(), broken in 0..4_usize) {
        let items = vec![Fault::None; script.items.len()];
        let mut flaws = vec![Flaw::None; script.flaws.len() + 1];
        let broken = broken % flaws.len();
        flaws[broken] = Flaw::Broken;
        let quarantine_after = script.quarantine_after.or(Some(2));
        let (keeps_inputs, keeps_items) = (false, false);
        let script = Script {
            items, flaws, quarantine_after, keeps_inputs, keeps_items, ..script
        };
        let simulation = Simulation::new(script.clone()).play();
        prop_assert_eq!(simulation.succeeded.len(), script.items.len());
        prop_assert!(simulation.quarantined.iter().all(|&it| it == broken));
    }

    /// An item is tried again after each failure, up to the permitted number of retries.
    #[test]
    fn attempts_are_those_that_were_asked_for(script in scripts()) {
        let items: Vec<_> = script.items.iter().map(|fault| match fault {
            Fault::Fails(attempts) => Fault::Fails(*attempts),
            _ => Fault::None,
        }).collect();
        let flaws = vec![Flaw::None; script.flaws.len()];
        let (batch, item_timeout, speculates) = (None, None, false);
        let on_error = OnError::Skip;
        let quarantine_after = None;
        let script = Script {
            items, flaws, batch, item_timeout, speculates, on_error, quarantine_after, ..script
        };
        let simulation = Simulation::new(script.clone()).play();
        for (index, fault) in (0..).zip(&script.items) {
            let Fault::Fails(attempts) = *fault else { continue };
            let is_ok = simulation.verdicts[&index] == End::Ok;
            prop_assert_eq!(is_ok, attempts <= script.retries);
            prop_assert_eq!(simulation.calls[&index], attempts.min(script.retries) + 1);
            if script.keeps_items {
                let failed_on = simulation.failed_on.range((index, 0)..=(index, usize::MAX));
                let all = failed_on.map(|(_, it)| it).chain(simulation.succeeded.get(&index));
                prop_assert_eq!(all.collect::<BTreeSet<_>>().len(), 1, "{} was kept", index);
            }
        }
    }
}
