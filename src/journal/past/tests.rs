use super::*;

fn recorded(keys: KeyKind, commits: &[&str]) -> Recorded {
    let mut recorded = Recorded::default();
    for commit in commits {
        recorded.add(keys, commit.as_bytes()).unwrap();
    }
    recorded
}

fn past(mode: Mode, keys: KeyKind, commits: &[&str]) -> Past {
    Past::new(recorded(keys, commits), mode, "j".into())
}

fn plans(past: &mut Past, positions: std::ops::Range<u64>) -> Vec<bool> {
    let runs = |position| past.decide(&JournalKey::Position(position)).unwrap() == ItemPlan::Run;
    positions.map(runs).collect()
}

const COMMITS: [&str; 2] =
    [r#"{"done":[[0,1],[4,4]],"failed":[2,5],"note":"a"}"#, r#"{"done":[[5,5]]}"#];

#[test]
fn resuming_leaves_out_what_is_done() {
    let mut past = past(Mode::Resume, KeyKind::Position, &COMMITS);
    assert_eq!(plans(&mut past, 0..7), [false, false, true, true, false, false, true]);
    assert_eq!((past.done(), past.failed(), past.last_note()), (4, 1, Some(&b"a"[..])));
}

#[test]
fn rerunning_runs_what_failed_and_is_not_done() {
    let mut past = past(Mode::RerunFailed, KeyKind::Position, &COMMITS);
    assert_eq!(plans(&mut past, 0..7), [false, false, true, false, false, false, false]);
}

#[test]
fn an_input_may_grow_but_not_shrink() {
    let past = past(Mode::Resume, KeyKind::Position, &COMMITS);
    assert!(past.check_length(6).is_ok() && past.check_length(7).is_ok());
    let error = past.check_length(5).unwrap_err();
    assert!(matches!(error, JournalError::InputShorter { items: 5, recorded: 5, .. }), "{error}");
}

#[test]
fn names_are_told_apart_by_their_number() {
    let commits = [r#"{"done":["a",["a",3]],"failed":["b"]}"#, r#"{"done":["b"],"failed":["c"]}"#];
    let past = past(Mode::Resume, KeyKind::Name, &commits);
    let key = |name: &str, occurrence| JournalKey::Name { name: name.into(), occurrence };
    let keys = [key("a", 1), key("a", 2), key("a", 3), key("b", 1), key("c", 1), key("d", 1)];
    assert_eq!(
        keys.each_ref().map(|key| past.is_done(key)),
        [true, false, true, true, false, false]
    );
    assert_eq!(
        keys.each_ref().map(|key| past.is_failed(key)),
        [false, false, false, false, true, false]
    );
    assert_eq!((past.done(), past.failed()), (3, 1));
}

/// Returns the first item that has changed, of items that are checked in order.
fn first_change(commits: &[&str], hashes: &[u64]) -> Option<(usize, u64, u64)> {
    let mut past = past(Mode::Resume, KeyKind::HashedPosition, commits);
    hashes.iter().enumerate().find_map(|(position, hash)| {
        match past.decide(&JournalKey::HashedPosition { position: position as u64, hash: *hash }) {
            Err(JournalError::ItemChanged { first, last, .. }) => Some((position, first, last)),
            Err(error) => panic!("{error}"),
            Ok(_) => None,
        }
    })
}

#[test]
fn a_changed_item_is_noticed_with_the_last_that_it_was_committed_with() {
    let hashes = [10, 11, 12, 13, 14, 15];
    let together = |hashes: &[u64]| hashes.iter().fold(0, |all, hash| fold(all, *hash));
    let commits = [
        &format!(r#"{{"done":[[0,2,{}]],"failed":[[4,14]]}}"#, together(&hashes[..3])),
        &*format!(r#"{{"done":[[3,3,{}]]}}"#, together(&hashes[3..4])),
    ];
    assert_eq!(first_change(&commits, &hashes), None);
    let noticed = |position: usize| {
        let mut hashes = hashes;
        hashes[position] += 1;
        first_change(&commits, &hashes)
    };
    assert_eq!([0, 1, 2].map(noticed), [Some((2, 0, 2)); 3]);
    assert_eq!([3, 4, 5].map(noticed), [Some((3, 3, 3)), Some((4, 4, 4)), None]);
}

#[test]
fn nothing_is_done_twice() {
    let is_refused = |keys, commits: [&str; 2]| {
        let mut recorded = recorded(keys, &commits[..1]);
        recorded.add(keys, commits[1].as_bytes()) == Err(Contradiction)
    };
    assert!(is_refused(KeyKind::Position, [r#"{"done":[[0,5]]}"#, r#"{"done":[[5,6]]}"#]));
    assert!(is_refused(KeyKind::Position, [r#"{"done":[[0,5]]}"#, r#"{"failed":[5]}"#]));
    assert!(is_refused(KeyKind::Name, [r#"{"done":["a"]}"#, r#"{"done":["a"]}"#]));
    assert!(is_refused(KeyKind::Position, ["{}", r#"{"done":[[6,5]]}"#]));
    assert!(is_refused(KeyKind::Position, ["{}", r#"{"dome":[[5,6]]}"#]));
    assert!(!is_refused(KeyKind::Position, [r#"{"failed":[5]}"#, r#"{"failed":[5]}"#]));
}

#[test]
fn a_hundred_million_items_done_in_order_take_no_memory() {
    let mut recorded = Recorded::default();
    for commit in (0..100_000_000u64).step_by(100_000) {
        recorded
            .add_span(PositionSpan { first: commit, last: commit + 99_999, hash: None })
            .unwrap();
    }
    let whole = PositionSpan { first: 0, last: 99_999_999, hash: None };
    assert_eq!(recorded.done_positions.find(5), Some(whole));
    assert_eq!(recorded.done(), 100_000_000);
}
