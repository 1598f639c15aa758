use super::*;

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn an_item_is_named_while_it_is_worked_on() {
    let mut watch = ProducerWatch::new("cuda:0");
    assert_eq!(watch.doing(s(0), 60), "starting");
    watch.set_ready(s(1));
    assert_eq!(watch.doing(s(1), 60), "waiting");
    watch.starts(s(2), 7, None, 1);
    assert_eq!(watch.doing(s(5), 60), "item 7, 3.0 s");
    watch.finishes(s(6), 0);
    watch.starts(s(6), 7, Some(&"a\n.tif".into()), 2);
    assert_eq!(watch.doing(s(70), 60), "a\\n.tif, attempt 2, 1 min 04 s");
    assert_eq!(watch.busy(s(8)), (s(6), s(8)));
    assert_eq!(watch.items, 1);
    watch.finishes(s(70), 7);
    watch.starts(s(70), 8, Some(&"/data/grid3/hole_0074.tif".into()), 1);
    assert_eq!(watch.doing(s(71), 32), "/data/grid3/hole_0074.tif, 1.0 s");
    assert_eq!(watch.doing(s(71), 25), "/data...e_0074.tif, 1.0 s");
    assert_eq!(watch.doing(s(71), 0), "/da...74.tif, 1.0 s");
}

#[test]
fn a_batch_is_named_by_its_first_item_until_all_are_done() {
    let mut watch = ProducerWatch::new("cpu");
    for item in 4..8 {
        watch.starts(s(1), item, None, 1);
    }
    assert_eq!(watch.doing(s(3), 60), "item 4 and 3 more, 2.0 s");
    for _ in 4..8 {
        assert_ne!(watch.doing(s(3), 60), "waiting");
        watch.finishes(s(3), 0);
    }
    assert_eq!(watch.doing(s(3), 60), "waiting");
    assert_eq!((watch.items, watch.busy(s(4))), (4, (s(2), s(4))));
}

#[test]
fn unknown_time_counts_neither_as_work_nor_as_waiting() {
    let mut watch = ProducerWatch::new("cpu");
    watch.starts(s(0), 0, None, 1);
    watch.finishes(s(1), 0);
    watch.starts(s(1), 1, None, 1);
    watch.note_missed_events();
    assert_eq!(watch.doing(s(50), 60), "many items");
    assert_eq!(watch.busy(s(50)), (s(1), s(1)));
    watch.starts(s(100), 90, None, 1);
    assert_eq!(watch.doing(s(102), 60), "item 90, 2.0 s", "and not item 1, for 101 s");
    watch.finishes(s(103), 0);
    assert_eq!(watch.busy(s(104)), (s(4), s(5)));
}

#[test]
fn an_end_whose_beginning_was_lost_is_an_end() {
    let mut watch = ProducerWatch::new("cpu");
    watch.note_missed_events();
    watch.finishes(s(5), 0);
    assert_eq!((watch.doing(s(6), 60).as_str(), watch.items), ("waiting", 1));
}

#[test]
fn times_out_of_order_are_harmless() {
    let mut watch = ProducerWatch::new("cpu");
    watch.starts(s(5), 0, None, 1);
    assert_eq!(watch.doing(s(4), 60), "item 0, 0.0 s");
    watch.finishes(s(4), 0);
    assert_eq!(watch.busy(s(3)), (s(0), s(5)));
}
