//! Producers in child processes.

use super::Builder;
use crate::api::pool::OrderKind;
use crate::backends::process::in_processes::InProcesses;
use crate::backends::process::processes::Processes;
use crate::backends::remote::recipe::Recipe;
use crate::runner::Runner;

impl<R: Runner + 'static, O: OrderKind> Builder<R, O> {
    /// Puts each producer into a child process of its own.
    ///
    /// A hook that crashes, exits or runs out of memory then costs its item one
    /// [attempt](Builder::retries), and never the run: the process is started again. A hook that exceeds
    /// [`item_timeout`](Builder::item_timeout) is killed. The consumer's hooks stay in this process.
    ///
    /// The child makes its runner by the [`Recipe`], from the [configuration](Builder::cfg). This program's
    /// `main` must begin with [`worker_main`](crate::worker_main), since the child runs the same program.
    ///
    /// In the child, the hooks run on the thread that called `worker_main`, which is the main thread. So they may set
    /// handlers of signals, and use libraries that ask for the main thread. With
    /// `cpu_threads`, it is the first thread of the pool. Only with a
    /// [`stack_size`](Builder::stack_size) they run on a thread of that size, `gangline-p0` and so on.
    ///
    /// An item is encoded, sent to the child and decoded there, and its output on the way back: 5 us for a small item
    /// if further ones are sent [ahead](Processes::ahead), 11 to 49 us for one alone, by the machine, and 11 ms
    /// for 8 MiB. With hooks of a millisecond, two children reach 0.98 of the rate of threads.
    ///
    /// # Errors
    ///
    /// [`build`](Builder::build) fails with [`Error::Worker`](crate::Error::Worker) if a child cannot be
    /// started, does not become a worker within 10 s, or is of another version; if `make` fails in it; and in a
    /// process that was started as a worker and has not called `worker_main`.
    ///
    /// ```no_run
    /// use gangline::closures::FnMap;
    /// use gangline::process::{Processes, Recipe};
    /// use gangline::{OrderedRunner, ProducerContext, Result, map, worker_main};
    ///
    /// fn init(_: &ProducerContext<'_>) -> Result<()> {
    ///     Ok(())
    /// }
    /// fn work(_: &ProducerContext<'_>, _: &mut (), x: u64) -> Result<u64> {
    ///     Ok(x * x) // a crash in here costs one attempt
    /// }
    /// static SQUARES: Recipe<FnMap<(), u64, u64>> = Recipe::new("squares", |_| Ok(map(init, work)));
    ///
    /// fn main() -> Result<()> {
    ///     worker_main(&[&SQUARES]);
    ///     let squares: FnMap<(), u64, u64> = map(init, work);
    ///     let builder = OrderedRunner::builder(squares).devices("cpu*2").retries(2);
    ///     let mut pool = builder.processes(&SQUARES, Processes::new()).build()?;
    ///     println!("{:?}", pool.run(0..100)?);
    ///     Ok(())
    /// }
    /// ```
    #[cfg_attr(docsrs, doc(cfg(feature = "processes")))]
    pub fn processes(self, recipe: &'static Recipe<R>, processes: Processes) -> Self {
        self.backend(InProcesses::new(recipe.items, processes))
    }
}
