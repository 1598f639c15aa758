//! Makes a process a worker.

use crate::backends::process::worker_entry::Serve;
use crate::backends::process::worker_entry::serve_if_started;
use crate::backends::remote::recipe::Recipe;
use crate::runner::Runner;

/// A recipe for a runner of any type: what [`worker_main`] takes.
#[cfg(not(feature = "nats"))]
pub trait AnyRecipe: Serve {}

/// A recipe for a runner of any type: what [`worker_main`] takes.
#[cfg(feature = "nats")]
pub trait AnyRecipe: Serve + crate::backends::cluster::hosting::Host {}

impl<R: Runner + 'static> AnyRecipe for Recipe<R> {}

/// Makes this process a worker if it was started as one; it then never returns.
///
/// It belongs on the first line of `main`, before anything that a worker should not do too. In an ordinary
/// process it returns at once. `recipes` are all those that the program builds pools with.
///
/// The hooks of a child process run on the thread that calls this, unless a
/// [`stack_size`](crate::Builder::stack_size) is set.
///
/// A coordinator starts a worker as a [child process](crate::Builder::processes). With the feature `nats`, a
/// process becomes a worker of a cluster if `GANGLINE_NATS` in its environment has the address of a broker.
///
/// ```no_run
/// # use gangline::process::Recipe;
/// # fn example<R: gangline::Runner>(squares: &'static Recipe<R>) where Recipe<R>: gangline::process::AnyRecipe {
/// gangline::worker_main(&[squares]);
/// # }
/// ```
pub fn worker_main(recipes: &[&dyn AnyRecipe]) {
    #[cfg(feature = "nats")]
    {
        let hosts: Vec<_> =
            recipes.iter().map(|&it| it as &dyn crate::backends::cluster::hosting::Host).collect();
        crate::backends::cluster::worker_client::serve_if_asked(&hosts);
    }
    let recipes: Vec<_> = recipes.iter().map(|&recipe| recipe as &dyn Serve).collect();
    serve_if_started(&recipes);
}
