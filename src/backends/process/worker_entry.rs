//! Whether this process is a worker, and for which recipe.

use std::env;
use std::sync::atomic::{AtomicBool, Ordering};

use super::connection::{CoordinatorConnection, VARIABLE, refuse};
use super::message::Nonce;
use crate::backends::remote::recipe::Recipe;
use crate::error::{Error, WorkerError};
use crate::runner::Runner;

/// A recipe, as a child process uses it.
#[expect(unnameable_types, reason = "no other crate implements it")]
pub trait Serve: Sync {
    fn name(&self) -> &'static str;
    /// What the coordinator's recipe has and this one lacks, for a person.
    fn difference(&self, connection: &CoordinatorConnection) -> Option<String>;
    fn serve(&self, connection: CoordinatorConnection) -> !;
}

/// A recipe for a runner of any type: what [`worker_main`] takes.
pub trait AnyRecipe: Serve {}

impl<R: Runner + 'static> AnyRecipe for Recipe<R> {}

/// Makes this process a worker if it was started as one; it then never returns.
///
/// It belongs on the first line of `main`, before anything that a worker should not do too. In an ordinary
/// process it returns at once. `recipes` are all those that the program builds pools with.
///
/// The hooks of a child process run on the thread that calls this, unless a
/// [`stack_size`](crate::Builder::stack_size) is set.
///
/// A coordinator starts a worker as a [child process](crate::Builder::processes). Programs with clusters call
/// `gangline_nats::worker_main` instead, which serves as either.
///
/// ```no_run
/// # use gangline::process::Recipe;
/// # fn example<R: gangline::Runner>(squares: &'static Recipe<R>) where Recipe<R>: gangline::process::AnyRecipe {
/// gangline::worker_main(&[squares]);
/// # }
/// ```
pub fn worker_main(recipes: &[&dyn AnyRecipe]) {
    let recipes: Vec<_> = recipes.iter().map(|&recipe| recipe as &dyn Serve).collect();
    serve_if_started(&recipes);
}

/// Whether this process has called `worker_main`.
static PASSED: AtomicBool = AtomicBool::new(false);

/// Serves the coordinator that has started this process as a worker, and then never returns. In an ordinary
/// process it returns at once.
fn serve_if_started(recipes: &[&dyn Serve]) {
    let nonce = nonce();
    // Before it serves: a hook may start workers of its own, whose `main` begins as that of this process.
    PASSED.store(true, Ordering::Relaxed);
    if let Some(connection) = nonce.and_then(CoordinatorConnection::accept) {
        serve(connection, recipes);
    }
}

/// Fails if this process may not start workers: it was started as a worker and has not called `worker_main`, so each worker
/// would start others.
///
/// # Errors
///
/// [`WorkerError::Nested`] then.
pub fn check_may_start() -> Result<(), Error> {
    match PASSED.load(Ordering::Relaxed) || env::var_os(VARIABLE).is_none() {
        true => Ok(()),
        false => Err(WorkerError::Nested {}.into()),
    }
}

fn nonce() -> Option<Nonce> {
    u128::from_str_radix(&env::var(VARIABLE).ok()?, 16).ok().map(Nonce)
}

fn serve(connection: CoordinatorConnection, recipes: &[&dyn Serve]) -> ! {
    let wanted = connection.recipe();
    let Some(recipe) = recipes.iter().find(|recipe| recipe.name() == wanted) else {
        let names: Vec<_> = recipes.iter().map(|recipe| recipe.name()).collect();
        let reason = format!("it has the recipes {names:?}, the coordinator asks for {wanted:?}");
        refuse(&connection.socket, reason)
    };
    if let Some(difference) = recipe.difference(&connection) {
        refuse(&connection.socket, format!("recipe {wanted:?}: {difference}"))
    }
    connection.say_ready();
    recipe.serve(connection)
}
