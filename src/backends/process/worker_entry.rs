//! Whether this process is a worker, and for which recipe.

use std::env;
use std::sync::atomic::{AtomicBool, Ordering};

use super::connection::{CoordinatorConnection, VARIABLE, refuse};
use super::message::Nonce;

/// A recipe, as a child process uses it.
pub trait Serve: Sync {
    fn name(&self) -> &'static str;
    /// What the coordinator's recipe has and this one lacks, for a person.
    fn difference(&self, connection: &CoordinatorConnection) -> Option<String>;
    fn serve(&self, connection: CoordinatorConnection) -> !;
}

/// Whether this process has called `worker_main`.
static PASSED: AtomicBool = AtomicBool::new(false);

/// Serves the coordinator that has started this process as a worker, and then never returns. In an ordinary
/// process it returns at once.
pub(crate) fn serve_if_started(recipes: &[&dyn Serve]) {
    let nonce = nonce();
    // Before it serves: a hook may start workers of its own, whose `main` begins as that of this process.
    PASSED.store(true, Ordering::Relaxed);
    if let Some(connection) = nonce.and_then(CoordinatorConnection::accept) {
        serve(connection, recipes);
    }
}

/// Whether this process may start workers. One that was started as a worker and has not called `worker_main` would start
/// workers that do the same.
pub(crate) fn may_start_workers() -> bool {
    PASSED.load(Ordering::Relaxed) || env::var_os(VARIABLE).is_none()
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
