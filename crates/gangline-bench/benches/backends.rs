//! Measures producers in child processes beside producers on threads:
//! `cargo bench -p gangline-bench --bench backends`.
//!
//! - Items of 100 bytes without work: the time that an item costs, also if each waits for the answer to the one before.
//! - Items of 1 ms: the rate, beside threads.
//! - Items of 8 MiB that come back: the time, beside a bare echo through a socket pair.
//! - The start of a child, and what a crash costs before the next item is done.
//!
//! Each figure is the median of the rounds. The variants take turns.
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
fn main() -> gangline::Result<()> {
    linux::measure()
}

#[cfg(target_os = "linux")]
mod linux {
    use std::hint::black_box;
    use std::io::{Read, Write};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    use gangline::closures::FnMap;
    use gangline::order::InputOrder;
    use gangline::process::{Processes, Recipe};
    use gangline::{
        Builder, CfgNode, OnError, OrderedRunner, ProducerContext, Result, map, worker_main,
    };
    use rustix::process::{Signal, getpid, kill_process};
    use serde::{Deserialize, Serialize};
    use serde_bytes::ByteBuf;

    /// Tells this program to send back what it reads from its standard input.
    const ECHO: &str = "GANGLINE_BENCH_ECHO";
    const LARGE: usize = 8 << 20;

    static RECIPE: Recipe<Work> = Recipe::new("backends", make);

    type Work = FnMap<(), Item, ByteBuf>;

    #[derive(Serialize, Deserialize)]
    enum Item {
        Return(ByteBuf),
        Compute(Duration),
        /// Kills the process that works on it.
        Die,
    }

    /// How much is measured.
    #[derive(Clone, Copy)]
    struct Effort {
        rounds: usize,
        small: usize,
        computed: usize,
        large: usize,
    }

    pub(super) fn measure() -> Result<()> {
        worker_main(&[&RECIPE]);
        if std::env::var_os(ECHO).is_some() {
            return echo();
        }
        // Without it `cargo test` asks only whether the program works.
        let effort = match std::env::args().any(|argument| argument == "--bench") {
            true => Effort { rounds: 7, small: 20_000, computed: 500, large: 20 },
            false => Effort { rounds: 1, small: 10, computed: 2, large: 1 },
        };
        small_items(effort)?;
        items_of_a_millisecond(effort)?;
        large_items(effort)?;
        starts_and_crashes(effort)
    }

    #[expect(clippy::unnecessary_wraps, reason = "the form that a recipe asks for")]
    fn make(_: &CfgNode) -> Result<Work> {
        Ok(map(init, work))
    }

    #[expect(clippy::unnecessary_wraps, reason = "the form of a hook")]
    fn init(_: &ProducerContext<'_>) -> Result<()> {
        Ok(())
    }

    fn work(_: &ProducerContext<'_>, (): &mut (), item: Item) -> Result<ByteBuf> {
        match item {
            Item::Return(bytes) => Ok(bytes),
            Item::Compute(time) => {
                let since = Instant::now();
                while since.elapsed() < time {
                    std::hint::spin_loop();
                }
                Ok(ByteBuf::new())
            }
            Item::Die => {
                kill_process(getpid(), Signal::KILL)?;
                Ok(ByteBuf::new())
            }
        }
    }

    fn builder(producers: usize) -> Result<Builder<Work, InputOrder>> {
        Ok(OrderedRunner::builder(make(&CfgNode::new())?).devices(producers))
    }

    fn on_threads(producers: usize) -> Result<OrderedRunner<Work>> {
        Ok(builder(producers)?.build()?)
    }

    fn in_processes(producers: usize) -> Result<OrderedRunner<Work>> {
        Ok(builder(producers)?.processes(&RECIPE, Processes::new()).build()?)
    }

    fn small_items(Effort { rounds, small, .. }: Effort) -> Result<()> {
        let one_by_one = builder(2)?.processes(&RECIPE, Processes::new().ahead(1));
        let mut pools = [in_processes(2)?, one_by_one.build()?];
        let mut each = [vec![], vec![]];
        for _ in 0..rounds {
            for (pool, each) in pools.iter_mut().zip(&mut each) {
                let items = (0..small).map(|_| Item::Return(ByteBuf::from([7; 100])));
                let time = time(|| Ok(pool.run(items)?))?;
                each.push(time * 2.0 / small as f64);
            }
        }
        let [ahead, one_by_one] = each.map(|each| median(each) * 1e6);
        println!("items of 100 B, two children: {ahead:.1} us per item and child; the aim is 6");
        println!("the same, none of them sent ahead: {one_by_one:.1} us");
        Ok(())
    }

    fn items_of_a_millisecond(Effort { rounds, computed, .. }: Effort) -> Result<()> {
        let (mut threads, mut processes) = (on_threads(2)?, in_processes(2)?);
        let items = || (0..computed).map(|_| Item::Compute(Duration::from_millis(1)));
        let mut ratios = vec![];
        for _ in 0..rounds {
            let on_threads = time(|| Ok(threads.run(items())?))?;
            let in_processes = time(|| Ok(processes.run(items())?))?;
            ratios.push(on_threads / in_processes);
        }
        println!(
            "items of 1 ms, two children: {:.3} of the rate of threads; the aim is 0.95",
            median(ratios)
        );
        Ok(())
    }

    fn large_items(Effort { rounds, large, .. }: Effort) -> Result<()> {
        let mut pool = in_processes(1)?;
        let mut peer = Echo::start()?;
        let (mut ours, mut bare) = (vec![], vec![]);
        for _ in 0..rounds {
            let items = (0..large).map(|_| Item::Return(ByteBuf::from(vec![7; LARGE])));
            ours.push(time(|| Ok(pool.run(items)?))? / large as f64);
            let echoes = || (0..large).try_for_each(|_| peer.send(&vec![7; LARGE]));
            bare.push(time(echoes)? / large as f64);
        }
        peer.end()?;
        let (ours, bare) = (median(ours), median(bare));
        println!(
            "items of 8 MiB there and back, one child: {:.2} ms, {:.2} times a bare echo; the aim is 1.5",
            ours * 1e3,
            ours / bare
        );
        Ok(())
    }

    fn starts_and_crashes(Effort { rounds, .. }: Effort) -> Result<()> {
        let (mut starts, mut crashes) = (vec![], vec![]);
        let skipping = builder(1)?.on_error(OnError::Skip);
        let mut pool = skipping.processes(&RECIPE, Processes::new()).build()?;
        for _ in 0..rounds {
            starts.push(time(|| in_processes(1))?);
            let next = || Item::Return(ByteBuf::new());
            let without = time(|| Ok(pool.run([next()])?))?;
            let with = time(|| Ok(pool.run([Item::Die, next()])?))?;
            crashes.push(with - without);
        }
        println!("start of a child, and the end of its pool: {:.1} ms", median(starts) * 1e3);
        println!("what a crash costs: {:.1} ms; the aim is 20", median(crashes) * 1e3);
        Ok(())
    }

    /// A child of this program that sends back what it reads.
    struct Echo {
        child: Child,
        socket: UnixStream,
    }

    impl Echo {
        fn start() -> Result<Self> {
            let (socket, theirs) = UnixStream::pair()?;
            let child = Command::new(std::env::current_exe()?)
                .env(ECHO, "1")
                .stdin(Stdio::from(OwnedFd::from(theirs)))
                .spawn()?;
            Ok(Echo { child, socket })
        }

        fn send(&mut self, bytes: &[u8]) -> Result<()> {
            let mut returned = vec![0; bytes.len()];
            self.socket.write_all(&(bytes.len() as u64).to_le_bytes())?;
            self.socket.write_all(bytes)?;
            self.socket.read_exact(&mut returned)?;
            black_box(returned);
            Ok(())
        }

        fn end(self) -> Result<()> {
            let Echo { mut child, socket } = self;
            drop(socket);
            child.wait()?;
            Ok(())
        }
    }

    fn echo() -> Result<()> {
        use std::os::fd::AsFd;
        let mut socket = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
        let mut len = [0; 8];
        while socket.read_exact(&mut len).is_ok() {
            let mut bytes = vec![0; usize::try_from(u64::from_le_bytes(len))?];
            socket.read_exact(&mut bytes)?;
            socket.write_all(&bytes)?;
        }
        Ok(())
    }

    fn time<T>(work: impl FnOnce() -> Result<T>) -> Result<f64> {
        let since = Instant::now();
        black_box(work()?);
        Ok(since.elapsed().as_secs_f64())
    }

    fn median(mut times: Vec<f64>) -> f64 {
        times.sort_unstable_by(f64::total_cmp);
        times[times.len() / 2]
    }
}
