//! The laws for runs on devices that break, with every policy for what fails.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gangline::{Account, AnyOrderRunner, Batch, Error, OnError, Order, ProducerContext, Result};
use proptest::prelude::*;

use crate::hooks::{Hooks, sorted};
use crate::support::no_hang;

/// The fate of one item on a device that works.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Item {
    Passes,
    /// This number of attempts fail.
    Fails(u32),
    Panics,
}

/// What is wrong with a device.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Device {
    Works,
    /// Everything fails from that call on.
    FailsFrom(u64),
    /// It panics at that call, and its state cannot be rebuilt.
    GoneAt(u64),
}

#[derive(Debug, Clone)]
struct Script {
    order: Order,
    devices: Vec<Device>,
    items: Vec<Item>,
    window: Option<usize>,
    batch: Option<Batch>,
    on_error: OnError,
    retries: u32,
    quarantine_after: Option<usize>,
    min_producers: Option<usize>,
}

fn scripts() -> impl Strategy<Value = Script> {
    let device = prop_oneof![
        2 => Just(Device::Works),
        1 => Just(Device::FailsFrom(0)),
        1 => (0..10_u64).prop_map(Device::FailsFrom),
        1 => (0..10_u64).prop_map(Device::GoneAt),
    ];
    let item = prop_oneof![
        20 => Just(Item::Passes),
        1 => Just(Item::Fails(u32::MAX)),
        1 => (1..4_u32).prop_map(Item::Fails),
        1 => Just(Item::Panics),
    ];
    let batch = (1..6_usize, any::<bool>()).prop_map(|(most, is_fixed)| match is_fixed {
        true => Batch::of(most),
        false => Batch::up_to(most),
    });
    let policy = (
        prop_oneof![1 => Just(OnError::Stop), 3 => Just(OnError::Skip)],
        0..3_u32,
        proptest::option::of(1..4_usize),
        proptest::option::of(1..5_usize),
    );
    (
        prop_oneof![Just(Order::Input), Just(Order::Completion)],
        proptest::collection::vec(device, 1..5),
        proptest::collection::vec(item, 0..50),
        proptest::option::of(1..20_usize),
        proptest::option::of(batch),
        policy,
    )
        .prop_map(|(order, devices, items, window, batch, policy)| {
            let (on_error, retries, quarantine_after, least) = policy;
            let most = batch.map_or(1, |batch: Batch| batch.most());
            Script {
                order,
                min_producers: least.map(|least| least.min(devices.len())),
                devices,
                items,
                window: window.map(|window| window.max(most)),
                batch,
                on_error,
                retries,
                quarantine_after,
            }
        })
}

/// What the hooks do and see.
#[derive(Debug)]
struct Stage {
    script: Script,
    calls: Vec<AtomicU64>,
    is_gone: Vec<AtomicBool>,
    /// Nothing fails any more.
    is_calm: AtomicBool,
    /// What the consumer was told, in that order, and whether it was an output.
    told: Mutex<Vec<(u64, bool)>>,
}

impl Stage {
    fn init(&self, cx: &ProducerContext<'_>) -> Result<()> {
        let is_gone = self.is_gone[cx.producer()].load(SeqCst) && !self.is_calm.load(SeqCst);
        if is_gone { Err("gone".into()) } else { Ok(()) }
    }

    fn work(&self, cx: &ProducerContext<'_>, x: u64) -> Result<u64> {
        if self.is_calm.load(SeqCst) {
            return Ok(x);
        }
        let (worker, call) = (cx.producer(), self.calls[cx.producer()].fetch_add(1, SeqCst));
        match self.script.devices[worker] {
            Device::FailsFrom(first) if call >= first => return Err("broken".into()),
            Device::GoneAt(at) if call == at => {
                self.is_gone[worker].store(true, SeqCst);
                panic!("gone");
            }
            _ => {}
        }
        match self.script.items[x as usize] {
            Item::Fails(attempts) if cx.attempt() <= attempts => Err("bad".into()),
            Item::Panics => panic!("bad"),
            _ => Ok(x),
        }
    }

    fn told(&self) -> Vec<(u64, bool)> {
        std::mem::take(&mut self.told.lock().unwrap())
    }
}

impl Script {
    fn stage(&self) -> Arc<Stage> {
        let devices = self.devices.len();
        Arc::new(Stage {
            script: self.clone(),
            calls: (0..devices).map(|_| AtomicU64::new(0)).collect(),
            is_gone: (0..devices).map(|_| AtomicBool::new(false)).collect(),
            is_calm: AtomicBool::new(false),
            told: Mutex::default(),
        })
    }

    fn pool(&self, stage: &Arc<Stage>) -> AnyOrderRunner<Hooks> {
        let [a, b, c, d] = std::array::from_fn(|_| stage.clone());
        let hooks = Hooks::new()
            .init(move |cx| a.init(cx))
            .work(move |cx, x| b.work(cx, x))
            .consume(move |cx, y| {
                assert_eq!(cx.item(), Some(y));
                c.told.lock().unwrap().push((y, true));
                Ok(())
            })
            .skipped(move |cx| {
                d.told.lock().unwrap().push((cx.item().unwrap(), false));
                Ok(())
            });
        let mut builder = AnyOrderRunner::builder(hooks)
            .order(self.order)
            .devices(self.devices.len())
            .on_error(self.on_error)
            .retries(self.retries)
            .backoff(Duration::ZERO, Duration::ZERO);
        if let Some(window) = self.window {
            builder = builder.window(window);
        }
        if let Some(batch) = self.batch {
            builder = builder.batch(batch);
        }
        if let Some(failures) = self.quarantine_after {
            builder = builder.quarantine_after(failures);
        }
        if let Some(least) = self.min_producers {
            builder = builder.min_producers(least);
        }
        builder.build().unwrap()
    }

    fn count(&self) -> u64 {
        self.items.len() as u64
    }

    /// Whether a run has to come to its end, whatever happens on the way.
    fn survives(&self) -> bool {
        self.on_error == OnError::Skip
            && self.min_producers.is_none_or(|least| least == 1)
            && self.devices.contains(&Device::Works)
            && (self.quarantine_after.is_none() || self.is_clear())
    }

    /// Whether an item that fails somewhere and not elsewhere is the fault of the device. One that fails now
    /// and then looks like that of a device that works.
    fn is_clear(&self) -> bool {
        self.items.iter().all(|item| !matches!(item, Item::Fails(1..5)))
    }

    /// Whether each failure has to be attributed to its item or its producer.
    fn tells_items_from_devices(&self) -> bool {
        let bad = self.devices.iter().filter(|&&device| device != Device::Works).count();
        self.is_clear() && self.quarantine_after.is_some_and(|failures| failures.max(2) > bad)
    }

    fn check_account(&self, account: Account, told: &[(u64, bool)], pulled: u64) {
        let (ok, skipped): (Vec<&(u64, bool)>, Vec<_>) = told.iter().partition(|(_, is_ok)| *is_ok);
        assert_eq!((account.ok, account.already_done), (ok.len() as u64, 0));
        assert!(account.failed >= skipped.len() as u64);
        assert_eq!(account.ok + account.failed + account.cancelled, pulled);
        assert_eq!(account.unread, Some(self.count() - pulled));
        let items: BTreeSet<_> = told.iter().map(|(item, _)| item).collect();
        assert_eq!(items.len(), told.len(), "nothing is told twice");
    }

    fn check_told(&self, result: Result<(), &Error>, account: Account, told: &[(u64, bool)]) {
        if self.order == Order::Input {
            let items: Vec<_> = told.iter().map(|(item, _)| *item).collect();
            assert_eq!(items, (0..told.len() as u64).collect::<Vec<_>>(), "without gaps");
        }
        for &(item, is_ok) in told {
            let fails = matches!(self.items[item as usize], Item::Fails(u32::MAX) | Item::Panics);
            assert!(!is_ok || !fails, "{item} cannot be done");
        }
        match result {
            Ok(()) => {
                let skipped = told.iter().filter(|(_, is_ok)| !is_ok).count() as u64;
                assert_eq!((account.ok + account.failed, account.cancelled), (self.count(), 0));
                assert_eq!(account.failed, skipped, "each was told of once");
                if self.tells_items_from_devices() && self.survives() {
                    let passes = |item: u64| self.items[item as usize] == Item::Passes;
                    assert!(told.iter().all(|&(item, is_ok)| is_ok || !passes(item)));
                }
            }
            Err(error) => {
                assert!(!self.survives(), "{error:#}");
                assert!(!error.is_cancelled() && !error.is_input(), "{error:#}");
            }
        }
    }
}

fn check_run(script: &Script) {
    let stage = script.stage();
    let mut pool = script.pool(&stage);
    let pulled = AtomicU64::new(0);
    let items = 0..script.count();
    let result = pool.run(items.clone().inspect(|_| _ = pulled.fetch_add(1, SeqCst)));
    let (told, account) = (stage.told(), pool.account());
    script.check_account(account, &told, pulled.into_inner());
    script.check_told(result.as_ref().map(|_| ()), account, &told);
    if let Ok(outputs) = &result {
        let consumed = told.iter().filter(|(_, is_ok)| *is_ok).map(|(item, _)| *item);
        assert_eq!(*outputs, consumed.collect::<Vec<_>>());
    }
    check_afterwards(script, &stage, pool);
}

/// Nothing of it reaches the next run, but producers that are gone.
fn check_afterwards(script: &Script, stage: &Stage, mut pool: AnyOrderRunner<Hooks>) {
    stage.is_calm.store(true, SeqCst);
    let all: Vec<_> = (0..script.count()).collect();
    match pool.run(all.clone()) {
        Ok(outputs) => assert_eq!(sorted(outputs), all),
        Err(Error::TooFewProducers { .. }) => {}
        Err(error) => panic!("{error:#}"),
    }
    pool.close().unwrap();
    pool.activate().unwrap();
    assert_eq!(sorted(pool.run(all.clone()).unwrap()), all, "all are back");
}

fn check_stream(script: &Script, taken: usize) {
    let stage = script.stage();
    let mut pool = script.pool(&stage);
    let pulled = AtomicU64::new(0);
    let items = (0..script.count()).inspect(|_| _ = pulled.fetch_add(1, SeqCst));
    let (mut seen, mut errors, mut is_over) = (vec![], vec![], false);
    let mut stream = pool.outputs(items);
    for _ in 0..taken {
        match stream.next() {
            Some(Ok(output)) => seen.push(output),
            Some(Err(error)) => errors.push(error),
            None => {
                is_over = true;
                break;
            }
        }
    }
    drop(stream);
    let (account, pulled) = (pool.account(), pulled.into_inner());
    assert_eq!(account.ok, seen.len() as u64);
    assert_eq!(account.ok + account.failed + account.cancelled, pulled);
    assert!(account.failed + 1 >= errors.len() as u64, "{account:?} {errors:?}");
    assert_eq!(account.unread, Some(script.count() - pulled));
    if script.order == Order::Input {
        assert!(seen.is_sorted());
    }
    if is_over && script.survives() {
        assert_eq!(account.failed, errors.len() as u64);
        assert_eq!(account.ok + account.failed, script.count());
    }
    let all: BTreeSet<_> =
        seen.iter().copied().chain(errors.iter().filter_map(Error::item)).collect();
    assert!(errors.len() > 1 || all.len() >= seen.len(), "nothing twice");
    check_afterwards(script, &stage, pool);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_run_on_devices_that_break_keeps_the_laws(script in scripts()) {
        no_hang(move || check_run(&script));
    }

    #[test]
    fn a_stream_on_devices_that_break_keeps_the_laws(script in scripts(), taken in 0..70_usize) {
        no_hang(move || check_stream(&script, taken));
    }
}
