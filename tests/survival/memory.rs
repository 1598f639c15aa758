//! The memory of the items in flight is bounded to the end of a run.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use gangline::{CancelToken, Error, OrderedRunner};

use crate::support::{Gate, map, no_hang};

/// An item that is given out too early reaches a hook well within this time.
const WHILE: Duration = Duration::from_millis(200);

/// The items are pulled in this order, with room for 100: the third waits for room. Before it is pulled it counts as the
/// largest so far, or as a third of the bound.
const ITEMS: [u64; 4] = [30, 20, 60, 1];

/// Signals that the feeder has dropped the input, which it does before it gives out what it holds.
struct Dropped(Sender<()>);

impl Drop for Dropped {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

fn source() -> (impl Iterator<Item = u64>, Receiver<()>) {
    let (dropped, is_dropped) = channel();
    let dropped = Dropped(dropped);
    let items = ITEMS.into_iter().inspect(move |_| _ = &dropped);
    (items, is_dropped)
}

#[test]
fn a_drained_run_does_not_exceed_the_memory_of_its_window() {
    no_hang(|| {
        let (started, starts) = channel();
        let work = map(
            |_| Ok(()),
            move |_, (), x: u64| {
                let _ = started.send(x);
                Ok(x)
            },
        );
        let gate = Arc::new(Gate::new());
        let opens = gate.clone();
        let runner = work.fold(
            |_| Ok(vec![]),
            move |_, all: &mut Vec<u64>, x| {
                gate.pass();
                all.push(x);
                Ok(())
            },
        );
        let token = CancelToken::new();
        let drains = token.clone();
        let size = move |&x: &u64| {
            if x == 60 {
                drains.drain();
            }
            x
        };
        let builder = OrderedRunner::builder(runner).devices(3).cancel_token(token);
        let mut pool = builder.window_memory(100, size, |&x| x).build().unwrap();
        let (items, is_dropped) = source();
        let watch = std::thread::spawn(move || {
            is_dropped.recv().unwrap();
            let mut early: Vec<u64> = (0..2).map(|_| starts.recv().unwrap()).collect();
            early.extend(starts.recv_timeout(WHILE));
            opens.open();
            early.sort_unstable();
            early
        });
        assert_eq!(pool.run(items).unwrap(), [30, 20, 60], "what was pulled");
        assert_eq!(
            watch.join().unwrap(),
            [20, 30],
            "the third has room when the first is consumed"
        );
        assert_eq!(pool.account().unread, Some(1));
    });
}

#[test]
fn drained_outputs_do_not_exceed_the_memory_of_the_window() {
    no_hang(|| {
        let (started, starts) = channel();
        let gate = Arc::new(Gate::new());
        let (pass, opens) = (gate.clone(), gate);
        let work = map(
            |_| Ok(()),
            move |_, (), x: u64| {
                let _ = started.send(x);
                if x != 60 {
                    pass.pass();
                }
                Ok(x)
            },
        );
        let token = CancelToken::new();
        let drains = token.clone();
        let size = move |&x: &u64| {
            if x == 60 {
                drains.drain();
            }
            x
        };
        let builder = OrderedRunner::builder(work).devices(3).cancel_token(token);
        let mut pool = builder.window_memory(100, size, |&x| x).build().unwrap();
        let (items, is_dropped) = source();
        let watch = std::thread::spawn(move || {
            let mut early: Vec<u64> = (0..2).map(|_| starts.recv().unwrap()).collect();
            early.extend(starts.recv_timeout(WHILE));
            opens.open();
            early.sort_unstable();
            early
        });
        let outputs: Vec<u64> = pool.outputs(items).collect::<Result<_, Error>>().unwrap();
        assert_eq!(outputs, [30, 20, 60]);
        assert_eq!(watch.join().unwrap(), [20, 30]);
        drop(is_dropped);
    });
}
