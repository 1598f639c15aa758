//! The run: credits, hand-over, account.
//!
//! [`Crew`](crew::Crew) holds the producers' threads from building to close. A
//! [`Run`](run::Run) is made anew for each run and shared by everybody who takes part in it, so that
//! nothing of one run can reach the next.

pub(crate) mod alarm;
mod attendance;
pub(crate) mod call;
pub(crate) mod chronicle;
pub(crate) mod collector;
pub(crate) mod consumer;
#[cfg(feature = "rayon")]
pub(crate) mod cpu_pool;
#[cfg(not(feature = "rayon"))]
#[path = "engine/no_cpu_pool.rs"]
pub(crate) mod cpu_pool;
pub(crate) mod crew;
pub(crate) mod deadline_thread;
pub(crate) mod event_count;
pub(crate) mod exchange;
pub(crate) mod fault;
pub(crate) mod judgement;
mod leased;
pub(crate) mod ledger;
pub(crate) mod line;
pub(crate) mod losses;
pub(crate) mod outbox;
pub(crate) mod outlet;
pub(crate) mod pace;
pub(crate) mod producer;
pub(crate) mod queue;
pub(crate) mod relay;
pub(crate) mod roll;
pub(crate) mod run;
pub(crate) mod run_clock;
pub(crate) mod session;
mod shares;
pub(crate) mod source;
mod streaming;
pub(crate) mod telling;
pub(crate) mod terms;
pub(crate) mod timesheet;
pub(crate) mod weights;
pub(crate) mod window;
mod witness;

#[cfg(all(test, shuttle))]
mod model;
