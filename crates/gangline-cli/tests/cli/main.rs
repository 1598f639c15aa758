//! The program as a user starts it: real processes, one module for each topic.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails, also in its helpers")]

mod check;
mod devices;
mod dockerfile;
mod examples;
mod failure;
mod foreign;
mod gpus;
mod inherited;
mod inputs;
mod journal;
mod limits;
mod lists;
mod marks;
mod migration;
mod nvml;
mod output;
mod page_limits;
mod pages;
mod ported;
mod printing;
mod record_lines;
mod records;
mod refused;
mod reports;
mod resizing;
mod results;
mod retried;
mod retries;
mod run;
mod running;
mod signals;
mod slots;
mod sources;
mod stopped;
mod support;
mod threads;
mod warm;
mod warm_given_up;
mod worker_ends;
mod worker_pages;
