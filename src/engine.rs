//! The run: credits, hand-over, account.
//!
//! [`Crew`](crew::Crew) holds the producers' threads from building to close. A
//! [`Run`](run::Run) is made anew for each run and shared by everybody who takes part in it, so that
//! nothing of one run can reach the next.

mod attendance;
pub(crate) mod call;
pub(crate) mod collector;
pub(crate) mod consumer;
pub(crate) mod crew;
pub(crate) mod deadline_thread;
pub(crate) mod exchange;
pub(crate) mod fault;
pub(crate) mod item_names;
pub(crate) mod item_observer;
pub(crate) mod journal_writer;
pub(crate) mod judgement;
mod leased;
pub(crate) mod limits;
pub(crate) mod losses;
pub(crate) mod measures;
pub(crate) mod ordered_merge;
pub(crate) mod outbox;
pub(crate) mod pace;
pub(crate) mod producer;
pub(crate) mod reorder;
pub(crate) mod run;
pub(crate) mod run_clock;
pub(crate) mod run_settings;
pub(crate) mod run_totals;
pub(crate) mod session;
mod shares;
pub(crate) mod source;
pub(crate) mod stage_link;
pub(crate) mod stages;
mod streaming;
pub(crate) mod weights;
pub(crate) mod window;

#[cfg(all(test, shuttle))]
mod model;
