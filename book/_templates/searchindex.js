{#- A script, since a page that is read from a file may fetch no other. -#}
const BOOK = {{ book }};
