//! Parts of expansions in processes.

use std::sync::Arc;

use gangline::{Batch, OnError, OrderedRunner, map};

use crate::chores::{Chore, builder};
use crate::suite::tests;

tests![
    parts_are_worked_on_in_processes,
    a_failed_part_withdraws_the_others,
    a_crash_fails_the_parent_of_its_part,
];

/// What is gathered of each list of chores that comes through, and how many parts have failed.
fn gathered(processes: usize, batch: Batch, lists: Vec<Vec<Chore>>) -> (Vec<String>, u64) {
    let pass = map(|_| Ok(()), |_, (), list: Vec<Chore>| Ok(list));
    let lists_pool = OrderedRunner::new(pass, 1).unwrap();
    let parts = builder(processes).batch(batch).on_error(OnError::Skip).window(64);
    let mut parts = parts.build().unwrap();
    let join = map(|_| Ok(()), |_, (), (_, all): (Arc<Vec<Chore>>, Vec<String>)| Ok(all.join(" ")));
    let mut join = OrderedRunner::new(join, 1).unwrap();
    let line = lists_pool.expand(|list: &Arc<Vec<Chore>>| Vec::clone(list));
    let line = line.open_parents(8).then(&mut parts);
    let line = line.gather(|_| vec![], |all: &mut Vec<String>, _, _, text| all.push(text));
    let mut line = line.then(&mut join);
    let texts = line.run(lists).unwrap();
    drop(line);
    (texts, parts.account().failed)
}

fn squares(numbers: std::ops::Range<u64>) -> Vec<Chore> {
    numbers.map(Chore::Square).collect()
}

fn parts_are_worked_on_in_processes() {
    for batch in [Batch::of(1), Batch::of(4)] {
        let lists = (0..20).map(|n| squares(0..n % 4)).collect();
        let (texts, failed) = gathered(2, batch, lists);
        let all = ["", "0", "0 1", "0 1 4"];
        assert_eq!(texts, (0..20).map(|n| all[n % 4]).collect::<Vec<_>>());
        assert_eq!(failed, 0);
    }
}

fn a_failed_part_withdraws_the_others() {
    // Each would fail if it came to the process.
    let bad = vec![Chore::Fail("bad".to_owned()); 50];
    let lists = vec![squares(1..3), bad, squares(3..5)];
    let (texts, failed) = gathered(1, Batch::of(1), lists);
    assert_eq!(texts, ["1 4", "9 16"]);
    assert_eq!(failed, 1);
}

fn a_crash_fails_the_parent_of_its_part() {
    let mut bad = squares(0..3);
    bad[1] = Chore::Segv;
    for batch in [Batch::of(1), Batch::of(5)] {
        let (texts, failed) = gathered(2, batch, vec![squares(1..3), bad.clone(), squares(3..5)]);
        assert_eq!((texts, failed), (vec!["1 4".to_owned(), "9 16".to_owned()], 1));
    }
}
