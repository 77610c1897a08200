"""The controller's endpoint: Pinot's paths and Merlot's own. It parses requests and shapes answers, and decides
nothing.
"""
