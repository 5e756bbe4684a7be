from .shapes import main

main()
