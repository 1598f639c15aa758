//! Makes a process a worker.

use gangline::Runner;
use gangline::process::{AnyRecipe, Processes, Recipe};

use crate::hosting::Host;
use crate::worker_client::serve_if_asked;

/// A recipe for a runner of any type: what [`worker_main`] takes.
pub trait ClusterRecipe: AnyRecipe + Host {}

impl<R: Runner + 'static> ClusterRecipe for Recipe<R> {}

/// Makes this process a worker if it was started as one; it then never returns.
///
/// It takes the place of [`gangline::worker_main`], on the first line of `main`, in programs with clusters. A process becomes
/// a worker of a cluster if `GANGLINE_NATS` in its environment has the address of a broker. It becomes a
/// [child process](gangline::Builder::processes) if a coordinator has started it so. Else this returns at once.
///
/// `recipes` are all those that the program builds pools with.
///
/// ```no_run
/// # use gangline::process::Recipe;
/// # fn example<R: gangline::Runner>(squares: &'static Recipe<R>) where Recipe<R>: gangline_nats::ClusterRecipe {
/// gangline_nats::worker_main(&[squares]);
/// # }
/// ```
pub fn worker_main(recipes: &[&dyn ClusterRecipe]) {
    worker_main_with(Processes::new(), recipes);
}

/// Does what [`worker_main`] does. If the worker of a cluster has its hooks run in child processes, which
/// `GANGLINE_PROCESSES=1` asks for, they are started as `processes` says.
///
/// A program needs it whose children are not the program alone, such as an interpreter with a script.
///
/// ```no_run
/// # use gangline::process::Recipe;
/// # fn example<R: gangline::Runner>(squares: &'static Recipe<R>) where Recipe<R>: gangline_nats::ClusterRecipe {
/// use gangline::process::Processes;
///
/// gangline_nats::worker_main_with(Processes::new().args(["--child"]), &[squares]);
/// # }
/// ```
pub fn worker_main_with(processes: Processes, recipes: &[&dyn ClusterRecipe]) {
    let hosts: Vec<_> = recipes.iter().map(|&recipe| recipe as &dyn Host).collect();
    serve_if_asked(&hosts, processes);
    let recipes: Vec<_> = recipes.iter().map(|&recipe| recipe as &dyn AnyRecipe).collect();
    gangline::worker_main(&recipes);
}
