# report.sh: counting what tests print, for test/run and test/e2e/run.
#
# Sourced by bash scripts, never run.  `report` prints the line of a suite and adds to the sum,
# `report_sum` prints the last line of all and tells whether nothing failed.

total_passed=0
total_failed=0
total_skipped=0

# reads TAP (of one program, or what prove --verbose prints of several), writes "passed failed
# skipped"
count_tap() {
    awk '
        /^not ok [0-9]+.*# *(TODO|todo)/  { skipped++; next }
        /^ok [0-9]+.*# *(SKIP|skip)/      { skipped++; next }
        /^(.* )?1\.\.0 # *(SKIP|skip)/    { skipped++; next }
        /^not ok [0-9]+/                  { failed++; next }
        /^ok [0-9]+/                      { passed++; next }
        END { print passed + 0, failed + 0, skipped + 0 }'
}

# report SUITE FILES EXIT_CODE PASSED FAILED SKIPPED: the line of a suite, and its part in the
# sum
report() {
    local suite=$1 files=$2 rc=$3 passed=$4 failed=$5 skipped=$6

    if [ "$rc" != 0 ] && [ "$failed" = 0 ]; then
        echo "# $suite: ended with exit code $rc"
        failed=1
    fi
    if [ "$files" -gt 0 ] && [ $((passed + failed)) = 0 ]; then
        echo "# $suite: $files files, but no test was run"
        failed=1
    fi
    printf '%-10s %d passed, %d failed, %d skipped\n' "$suite" "$passed" "$failed" "$skipped"
    total_passed=$((total_passed + passed))
    total_failed=$((total_failed + failed))
    total_skipped=$((total_skipped + skipped))
}

report_sum() {
    if [ $total_skipped != 0 ]; then
        echo "$total_passed passed, $total_failed failed, $total_skipped skipped"
    else
        echo "$total_passed passed, $total_failed failed"
    fi
    [ $total_failed = 0 ] && [ $total_passed != 0 ]
}
