//! On which CPUs the threads of a run are.
//!
//! Where there are no more CPUs than producers, the feeder and the consumer wake up on them too, now
//! and then, and Linux may put two producers on one CPU meanwhile. It moves a thread when that wakes up
//! or when a CPU runs out of work for long; busy producers do not sleep, and the feeder and the
//! consumer keep their CPU from looking idle. On a virtual machine with two CPUs two producers then
//! shared one for 100 ms and more, in about every third run that followed on the building; and with a
//! window of 64, where the feeder and the consumer wake up all the time, in the midst of a run, at half
//! its speed. So there each begins on a CPU of its own, and one that finds another on its CPU for long
//! moves to one without. The collector moves away from the feeder: the two wait for each other most of the time,
//! and are on the CPUs of different producers then.
//!
//! None is bound to a CPU: from then on the system may move it among those that were allowed at that time. A process
//! that is given more CPUs later uses them with the threads that it starts then. A thread of the caller's is never
//! moved.

use std::time::{Duration, Instant};

use crate::sync::atomic::{AtomicU64, Ordering};

pub(crate) use self::system::spread;

/// So long two threads share a CPU before one of them moves. The system often puts them together for
/// a moment, and moving costs about 10 us. It is doubled with each move, up to `MOST_PATIENCE`, for the rest
/// of the run: where other programs are what a thread gives way to, it would come back at once.
const PATIENCE: Duration = Duration::from_millis(1);
const MOST_PATIENCE: Duration = Duration::from_millis(64);
/// A thread looks no more often than this for others on its CPU.
const LOOKS_EVERY: Duration = Duration::from_micros(250);
/// What a thread said longer ago says nothing: in a long item the system may have moved it.
const LASTS: Duration = Duration::from_millis(10);

/// Where the threads of a run are, as far as they have said so: hints.
#[derive(Debug)]
pub(crate) struct Placement {
    began: Instant,
    producers: Box<[Note]>,
    feeder: Note,
}

/// On which CPU a thread is.
#[derive(Debug)]
struct Note {
    /// The CPU, in the lowest 16 bits, and when that was noted, in microseconds from the beginning.
    packed: AtomicU64,
}

impl Placement {
    pub(crate) fn new(producers: usize, now: Instant) -> Self {
        let producers = (0..producers).map(|_| Note::new()).collect();
        Placement { began: now, producers, feeder: Note::new() }
    }

    /// Moves this thread, the producer `producer`, when it has shared its CPU with another for long and
    /// there is one without a producer. To be called now and then.
    #[inline]
    pub(crate) fn keep_producer_apart(&self, producer: usize, stay: &mut Stay, now: Instant) {
        if stay.is_to_look(now) {
            self.look(producer, stay, now);
        }
    }

    #[cold]
    fn look(&self, producer: usize, stay: &mut Stay, now: Instant) {
        let Some(cpu) = system::current() else { return };
        let note = &self.producers[producer];
        note.write(cpu, self.micros(now));
        let is_shared = self.others(producer, now).any(|other| other == cpu);
        if stay.is_over(is_shared, now) {
            let taken: Vec<_> = self.others(producer, now).collect();
            let Some(free) = system::free_cpu(&taken) else { return };
            // Before it goes: whoever gets this CPU as soon as it is free would follow it.
            note.write(free, self.micros(now));
            stay.ends();
            system::go_to(free);
        }
    }

    /// The producer `producer` needs no CPU.
    pub(crate) fn rest(&self, producer: usize) {
        self.producers[producer].erase();
    }

    /// This thread, the feeder, is about to give way to others.
    #[inline]
    pub(crate) fn note_feeder(&self, now: Instant) {
        if self.feeder.cpu(self.ago(LOOKS_EVERY, now)).is_none()
            && let Some(cpu) = system::current()
        {
            self.feeder.write(cpu, self.micros(now));
        }
    }

    /// The feeder needs no CPU.
    pub(crate) fn rest_feeder(&self) {
        self.feeder.erase();
    }

    /// Moves this thread, the collector, when it has shared its CPU with the feeder for long. To be called now and
    /// then.
    #[inline]
    pub(crate) fn keep_collector_apart(&self, stay: &mut Stay, now: Instant) {
        if stay.is_to_look(now) {
            self.look_as_collector(stay, now);
        }
    }

    #[cold]
    fn look_as_collector(&self, stay: &mut Stay, now: Instant) {
        let Some(cpu) = system::current() else { return };
        if stay.is_over(self.is_feeder_on(cpu, now), now)
            && let Some(other) = system::other_cpu(cpu, self.producers.len())
        {
            stay.ends();
            system::go_to(other);
        }
    }

    fn is_feeder_on(&self, cpu: usize, now: Instant) -> bool {
        self.feeder.cpu(self.ago(LASTS, now)) == Some(cpu)
    }

    /// The CPUs of the other producers.
    fn others(&self, producer: usize, now: Instant) -> impl Iterator<Item = usize> {
        let oldest = self.ago(LASTS, now);
        let others = self.producers.iter().enumerate().filter(move |(other, _)| *other != producer);
        others.filter_map(move |(_, note)| note.cpu(oldest))
    }

    fn ago(&self, time: Duration, now: Instant) -> u64 {
        self.micros(now).saturating_sub(time.as_micros() as u64)
    }

    fn micros(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.began).as_micros() as u64
    }
}

impl Note {
    const NOWHERE: u64 = u64::MAX;

    fn new() -> Self {
        Note { packed: AtomicU64::new(Note::NOWHERE) }
    }

    fn write(&self, cpu: usize, micros: u64) {
        let cpu = u16::try_from(cpu).map(u64::from);
        self.packed.store(cpu.map_or(Note::NOWHERE, |cpu| (micros << 16) | cpu), Ordering::Relaxed);
    }

    fn erase(&self) {
        self.packed.store(Note::NOWHERE, Ordering::Relaxed);
    }

    /// Where the thread is, if that was noted no earlier than at `oldest`.
    fn cpu(&self, oldest: u64) -> Option<usize> {
        let packed = self.packed.load(Ordering::Relaxed);
        (packed != Note::NOWHERE && packed >> 16 >= oldest).then(|| usize::from(packed as u16))
    }
}

/// How long a thread has shared its CPU with another: a decision without clocks.
#[derive(Debug)]
pub(crate) struct Stay {
    looked_at: Option<Instant>,
    shared_since: Option<Instant>,
    patience: Duration,
}

impl Stay {
    pub(crate) fn new() -> Self {
        Stay { looked_at: None, shared_since: None, patience: PATIENCE }
    }

    fn is_to_look(&self, now: Instant) -> bool {
        self.looked_at.is_none_or(|then| now - then >= LOOKS_EVERY)
    }

    #[cfg(all(test, target_os = "linux", not(shuttle)))]
    pub(crate) fn has_looked(&self) -> bool {
        self.looked_at.is_some()
    }

    /// The thread slept: it is not the CPU that it lacks.
    pub(crate) fn was_asleep(&mut self) {
        self.shared_since = None;
    }

    /// The thread waits while other programs want the CPUs. Where these are, the threads of a run get along better on
    /// one CPU than on several, of which each makes them wait for a time slice.
    pub(crate) fn was_beside_others(&mut self) {
        self.shared_since = None;
        self.patience = MOST_PATIENCE;
    }

    /// Whether the thread is to move, if there is anywhere to go. To be asked at each look.
    fn is_over(&mut self, is_shared: bool, now: Instant) -> bool {
        self.looked_at = Some(now);
        if !is_shared {
            self.shared_since = None;
            return false;
        }
        if now - *self.shared_since.get_or_insert(now) < self.patience {
            return false;
        }
        self.shared_since = None;
        true
    }

    /// The thread moves.
    fn ends(&mut self) {
        self.patience = MOST_PATIENCE.min(2 * self.patience);
    }
}

#[cfg(all(target_os = "linux", not(shuttle)))]
mod system {
    use std::io;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

    /// Which of the CPUs is next. Counted for the process, so that pools of one producer each do not
    /// meet on the first.
    static NEXT: OnceLock<AtomicUsize> = OnceLock::new();

    /// Moves this thread, one of so many `producers`, to the CPU whose turn it is, of those that it
    /// may run on, where these are no more than the producers. What the system refuses is left as it
    /// is: it costs time, not results.
    pub(crate) fn spread(producers: usize) {
        if let Err(error) = try_to_spread(producers) {
            tracing::debug!(%error, "a producer's thread starts where the system put it");
        }
    }

    fn try_to_spread(producers: usize) -> io::Result<()> {
        let allowed = sched_getaffinity(None)?;
        if producers < 2 || producers < allowed.count() as usize {
            return Ok(());
        }
        // The first goes beside the thread that happened to be here, which most likely feeds.
        let next = NEXT.get_or_init(|| AtomicUsize::new(sched_getcpu() + 1));
        match nth(&allowed, next.fetch_add(1, Ordering::Relaxed)) {
            Some(cpu) => move_to(cpu, &allowed),
            None => Ok(()),
        }
    }

    /// The CPU that this thread is on.
    pub(super) fn current() -> Option<usize> {
        Some(sched_getcpu())
    }

    /// A CPU that this thread may run on and where none of the other producers is, which are on `taken`, if there
    /// are so few CPUs that this cannot be left to the system.
    pub(super) fn free_cpu(taken: &[usize]) -> Option<usize> {
        free_of(&sched_getaffinity(None).ok()?, taken)
    }

    fn free_of(allowed: &CpuSet, taken: &[usize]) -> Option<usize> {
        // With fewer than two more, somebody has to share with the feeder or the consumer.
        let are_few = (allowed.count() as usize) < taken.len() + 1 + 2;
        cpus(allowed).find(|cpu| are_few && !taken.contains(cpu))
    }

    /// Another CPU than this one, for a thread beside so many `producers`, if there are not more CPUs than these.
    pub(super) fn other_cpu(cpu: usize, producers: usize) -> Option<usize> {
        other_of(&sched_getaffinity(None).ok()?, cpu, producers)
    }

    fn other_of(allowed: &CpuSet, cpu: usize, producers: usize) -> Option<usize> {
        let are_few = allowed.count() as usize <= producers;
        let others = || cpus(allowed).filter(|&other| are_few && other != cpu);
        others().find(|&other| other > cpu).or_else(|| others().next())
    }

    /// Moves this thread there.
    pub(super) fn go_to(cpu: usize) {
        let allowed = sched_getaffinity(None).map_err(io::Error::from);
        if let Err(error) = allowed.and_then(|allowed| move_to(cpu, &allowed)) {
            tracing::debug!(%error, "a thread stays where the system put it");
        }
    }

    /// Moves this thread, and lets it run on all that are `allowed` from then on.
    fn move_to(cpu: usize, allowed: &CpuSet) -> io::Result<()> {
        bind_to(cpu)?;
        // What was allowed may have changed meanwhile, and the system takes what is allowed out of all.
        let freed = sched_setaffinity(None, allowed).or_else(|_| sched_setaffinity(None, &all()));
        if let Err(error) = freed {
            tracing::warn!(%error, cpu, "a thread can only run on one CPU from now on");
        }
        Ok(())
    }

    fn bind_to(cpu: usize) -> io::Result<()> {
        let mut only = CpuSet::new();
        only.set(cpu);
        Ok(sched_setaffinity(None, &only)?)
    }

    fn all() -> CpuSet {
        let mut all = CpuSet::new();
        (0..CpuSet::MAX_CPU).for_each(|cpu| all.set(cpu));
        all
    }

    fn cpus(set: &CpuSet) -> impl Iterator<Item = usize> {
        (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu))
    }

    /// Goes round the CPUs of a set.
    fn nth(set: &CpuSet, place: usize) -> Option<usize> {
        cpus(set).nth(place.checked_rem(cpus(set).count())?)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn places_go_round_the_cpus_that_are_allowed() {
            let mut set = CpuSet::new();
            assert_eq!(nth(&set, 5), None);
            [3, 4, 70].into_iter().for_each(|cpu| set.set(cpu));
            let places: Vec<_> = (0..5).map(|place| nth(&set, place)).collect();
            assert_eq!(places, [Some(3), Some(4), Some(70), Some(3), Some(4)]);
        }

        #[test]
        fn a_cpu_is_free_where_no_other_producer_is() {
            let mut set = CpuSet::new();
            [3, 4, 70].into_iter().for_each(|cpu| set.set(cpu));
            assert_eq!(free_of(&set, &[3]), Some(4));
            assert_eq!(free_of(&set, &[3, 70, 4]), None);
            assert_eq!(free_of(&set, &[70, 70]), Some(3));
            [5, 6].into_iter().for_each(|cpu| set.set(cpu));
            assert_eq!(free_of(&set, &[3, 3]), None, "the system has room for all");
        }

        #[test]
        fn who_moves_away_goes_to_the_next_cpu_if_producers_take_them_all() {
            let mut set = CpuSet::new();
            set.set(4);
            assert_eq!(other_of(&set, 4, 1), None);
            [3, 70].into_iter().for_each(|cpu| set.set(cpu));
            let others = [3, 4, 70].map(|cpu| other_of(&set, cpu, 3));
            assert_eq!(others, [Some(4), Some(70), Some(3)]);
            assert_eq!(other_of(&set, 4, 2), None, "the system has room for it");
        }

        #[test]
        fn a_thread_that_was_moved_is_not_bound() {
            std::thread::spawn(|| {
                let before = sched_getaffinity(None).unwrap();
                for cpu in cpus(&before).take(3) {
                    bind_to(cpu).unwrap();
                    assert_eq!(current(), Some(cpu));
                    move_to(cpu, &before).unwrap();
                    assert_eq!(sched_getaffinity(None).unwrap(), before);
                }
            })
            .join()
            .unwrap();
        }
    }
}

#[cfg(any(not(target_os = "linux"), shuttle))]
mod system {
    /// Other systems place threads by themselves.
    pub(crate) fn spread(_producers: usize) {}

    /// Nobody is seen to share a CPU.
    pub(super) fn current() -> Option<usize> {
        None
    }

    pub(super) fn free_cpu(_taken: &[usize]) -> Option<usize> {
        None
    }

    pub(super) fn other_cpu(_cpu: usize, _producers: usize) -> Option<usize> {
        None
    }

    pub(super) fn go_to(_cpu: usize) {}
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use super::*;
    #[cfg(target_os = "linux")]
    use crate::engine::exchange::{Exchange, Feeder};

    /// After how many milliseconds a producer moves that shares its CPU at these.
    fn moves(shared: impl Fn(u64) -> bool, until: u64) -> Vec<u64> {
        let (start, mut stay) = (Instant::now(), Stay::new());
        let at = |ms| start + Duration::from_millis(ms);
        let mut moves = |ms| {
            let is_over = stay.is_over(shared(ms), at(ms));
            if is_over {
                stay.ends();
            }
            is_over
        };
        (0..until).filter(|&ms| moves(ms)).collect()
    }

    #[test]
    fn a_producer_moves_after_a_while_and_more_and_more_seldom() {
        assert_eq!(moves(|_| true, 20), [1, 4, 9, 18]);
        let all = moves(|_| true, 2_000);
        let last = all.windows(2).last().expect("it moves often");
        assert_eq!(last[1] - last[0], 65, "not seldom enough to be of no use");
    }

    #[test]
    fn a_moment_on_one_cpu_is_no_reason_to_move() {
        assert!(moves(|ms| ms % 2 == 0, 1_000).is_empty());
    }

    #[test]
    fn one_that_had_nowhere_to_go_loses_no_patience() {
        let (start, mut stay) = (Instant::now(), Stay::new());
        let is_over = |ms: &u64| stay.is_over(true, start + Duration::from_millis(*ms));
        assert_eq!((0..8).filter(is_over).collect::<Vec<_>>(), [1, 3, 5, 7]);
    }

    #[test]
    fn one_that_sleeps_lacks_no_cpu() {
        let (start, mut stay) = (Instant::now(), Stay::new());
        for ms in 0..1_000 {
            assert!(!stay.is_over(true, start + Duration::from_millis(ms)));
            stay.was_asleep();
        }
    }

    #[test]
    fn one_that_waits_beside_other_programs_moves_long_after_these_have_ended() {
        let (start, mut stay) = (Instant::now(), Stay::new());
        let at = |ms| start + Duration::from_millis(ms);
        for ms in 0..1_000 {
            assert!(!stay.is_over(true, at(ms)));
            stay.was_beside_others();
        }
        let moved = (1_000..2_000).find(|&ms| stay.is_over(true, at(ms)));
        assert_eq!(moved, Some(1_064));
    }

    #[test]
    fn a_producer_looks_now_and_then() {
        let (start, mut stay) = (Instant::now(), Stay::new());
        assert!(stay.is_to_look(start));
        stay.is_over(false, start);
        assert!(!stay.is_to_look(start + LOOKS_EVERY / 2));
        assert!(stay.is_to_look(start + LOOKS_EVERY));
    }

    #[test]
    fn one_that_sleeps_or_has_said_nothing_for_long_shares_its_cpu_with_nobody() {
        let began = Instant::now();
        let placement = Placement::new(3, began);
        let others = |now| placement.others(1, now).collect::<Vec<_>>();
        let micros = placement.micros(began + LASTS);
        placement.producers.iter().for_each(|note| note.write(5, micros));
        assert_eq!(others(began + LASTS), [5, 5]);
        placement.rest(0);
        assert_eq!(others(began + LASTS), [5]);
        assert_eq!(others(began + 2 * LASTS), [5]);
        assert!(others(began + 2 * LASTS + LOOKS_EVERY).is_empty());
    }

    #[test]
    fn a_feeder_that_sleeps_or_has_said_nothing_for_long_is_on_no_cpu() {
        let began = Instant::now();
        let placement = Placement::new(2, began);
        assert!(!placement.is_feeder_on(5, began));
        placement.feeder.write(5, placement.micros(began + LASTS));
        assert!(placement.is_feeder_on(5, began + 2 * LASTS));
        assert!(!placement.is_feeder_on(6, began + 2 * LASTS));
        assert!(!placement.is_feeder_on(5, began + 2 * LASTS + LOOKS_EVERY));
        placement.rest_feeder();
        assert!(!placement.is_feeder_on(5, began + LASTS));
    }
    #[test]
    #[cfg(target_os = "linux")]
    fn a_feeder_says_where_it_is_when_it_has_to_wait() {
        let exchange = Exchange::<(), ()>::new(1, 1, None, None);
        let mut feeder = Feeder::new(&exchange);
        let is_seen = || exchange.placement.feeder.cpu(0).is_some();
        assert!(feeder.wait_for_credit(&exchange));
        assert!(feeder.spend(&exchange));
        assert!(!is_seen());
        exchange.halt();
        assert!(!feeder.wait_for_credit(&exchange));
        assert!(is_seen());
    }
}
