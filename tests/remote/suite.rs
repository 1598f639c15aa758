//! Test programs with a `main` of their own.
//!
//! Their workers run them too, so they have to begin with `worker_main`. With the usual test harness, each worker would
//! run all tests again.

/// A list of names and bodies of tests.
pub type Tests = &'static [(&'static str, fn())];

/// Makes a list of tests of their names.
macro_rules! tests {
    ($($name:ident),* $(,)?) => {
        pub const TESTS: crate::suite::Tests = &[$((stringify!($name), $name as fn())),*];
    };
}
pub(crate) use tests;

/// Runs tests one at a time: a test kills whatever children this process has, and on a machine with more to do than it
/// can, short leases would end.
pub fn run(all: &[Tests]) -> ! {
    let mut arguments = libtest_mimic::Arguments::from_args();
    arguments.test_threads = Some(1);
    let trial = |&(name, test): &(&str, fn())| {
        libtest_mimic::Trial::test(name, move || {
            test();
            Ok(())
        })
    };
    let trials = all.concat().iter().map(trial).collect();
    libtest_mimic::run(&arguments, trials).exit()
}
