# Sourced by commands whose results are in docs/evidence.md.

# Prints standard input, or with `SMSQ_DOCS=update` replaces a block of the page with it, and with when and where it was
# measured: `publish NAME`.
publish() {
    local page=docs/evidence.md text
    text=$(cat)
    if [[ ${SMSQ_DOCS:-} != update ]]; then
        echo "$text"
        return
    fi
    text=$text$'\n\n'$(measured) name=$1 awk '
        $0 == "<!-- end of " ENVIRON["name"] " -->" { inside = 0; print ENVIRON["text"]; print "" }
        !inside { print }
        $0 == "<!-- begin of " ENVIRON["name"] " -->" { inside = 1; print "" }
    ' "$page" >"$page.new"
    mv "$page.new" "$page"
}

# When, of which commit and on which machine something was measured.
measured() {
    local processor memory
    processor=$(sed -nE 's/^model name\s*: //p' /proc/cpuinfo | head -n 1)
    memory=$(awk '/^MemTotal/ { printf "%.0f", $2 / 1048576 }' /proc/meminfo)
    echo "$(date -u +%F), commit $(git rev-parse --short HEAD), $(nproc) cores${processor:+ of $processor}, $memory GiB."
}
