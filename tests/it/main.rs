//! The library from outside, by behaviour: one module for each part.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails, also in its helpers")]
#![expect(unreachable_pub, reason = "`pub` says what the modules of this crate share")]

mod abandoned;
mod acceptance;
mod acceptance_batches;
mod account;
mod batch_limits;
mod batch_memory;
mod batches;
mod boxed;
mod cancel;
mod cancelled_runs;
mod cfg_in_runs;
mod compile;
mod destructors;
mod device_faults;
mod devices;
mod echo;
mod error_destructors;
mod events;
mod gpu_list;
mod gpu_list_visible;
#[cfg(target_os = "linux")]
mod gpu_lock;
mod guards;
mod hook_faults;
mod hooks;
mod input_faults;
mod journal;
mod journal_commits;
mod journal_faults;
#[expect(dead_code, reason = "other tests need the rest")]
mod journal_file;
mod life;
mod lost_races;
mod manual;
mod metrics;
mod order;
mod outcome_times;
mod outputs;
mod panicking_drops;
mod pipelines;
mod pipelines_cancel;
mod pipelines_faults;
mod pipelines_skip;
mod policy_retries;
mod policy_skip;
mod polite_inits;
mod probe;
mod process_ends;
mod prompt;
mod quarantine;
mod random_devices;
mod random_pipelines;
mod random_policies;
mod random_runs;
mod report_counts;
mod report_times;
mod reports;
mod shown_errors;
mod sinks;
mod stop;
mod stragglers;
mod stragglers_batches;
mod support;
mod survived_faults;
mod time_limits;
mod unwanted;
mod window;
