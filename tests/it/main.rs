//! The library from outside, by behaviour: one module for each part.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails, also in its helpers")]
#![expect(unreachable_pub, reason = "`pub` says what the modules of this crate share")]

mod abandoned;
mod acceptance;
mod acceptance_batches;
mod batch_limits;
mod batch_memory;
mod batches;
mod boxed;
mod cfg_in_runs;
mod compile;
mod destructors;
mod devices;
mod echo;
mod events;
mod everyday;
mod faults_a;
mod faults_b;
mod faults_c;
mod faults_c_cancel;
mod faults_child;
mod faults_d;
mod faults_g;
mod faults_survival;
mod gpu_list;
#[cfg(target_os = "linux")]
mod gpu_lock;
mod hooks;
mod journal;
mod journal_commits;
#[expect(dead_code, reason = "other tests need the rest")]
mod journal_file;
mod law_account;
mod law_cancel;
mod law_faults;
mod law_life;
mod law_order;
mod law_pipelines;
mod law_prompt;
mod law_random;
mod law_stop;
mod law_survival;
mod law_window;
mod manual;
#[cfg(feature = "metrics")]
mod metrics;
mod outcomes;
mod pages;
mod pipelines;
mod pipelines_cancel;
mod pipelines_faults;
mod policy_retries;
mod policy_skip;
mod polite_inits;
mod probe;
mod quarantine;
mod regressions;
mod report_counts;
mod report_times;
mod reports;
mod shown_errors;
mod sinks;
mod stragglers;
mod stragglers_batches;
mod support;
mod time_limits;
mod unwanted;
